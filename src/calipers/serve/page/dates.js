// Dates as days since 1970, with fractions if a column has times of day.

const DAY = 86_400_000;
const clock = (text) => String(text).slice(11, 16);

export const days = (text) => Date.parse(text.length > 10 ? `${text}Z` : `${text}T00:00Z`) / DAY;
export const isoDay = (day) => new Date(Math.floor(day + 1e-9) * DAY).toISOString().slice(0, 10);
export const isoMinute = (day) => new Date(Math.round(day * 1440) * 60_000).toISOString().slice(0, 16);

// Whether a column of dates has times of day. The median of whole days may be noon.
export const hasHours = ({ low, high, typical }) =>
  [low, high].some((text) => !["", "00:00"].includes(clock(text))) || !["", "00:00", "12:00"].includes(clock(typical));

// A date in the format of a column.
export const write = (column, day) => (hasHours(column) ? isoMinute(day) : isoDay(day));

// The day of one date with the time of another.
export const atTimeOf = (day, text) => `${isoDay(day)}T${clock(text) || "00:00"}`;
