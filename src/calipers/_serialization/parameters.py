"""Parameters of the estimator as JSON, and back."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any

from sklearn.base import BaseEstimator

from calipers._schema import SchemaError, anything, list_of, number, optional, record, refuse, whole
from calipers._serialization.model_schema import CUSTOM
from calipers._serialization.old_models import current_parameters
from calipers._text import plain
from calipers.training import SHORTHANDS


def parameters_to_dict(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of an estimator as JSON; the user's own objects become a mark."""
    return {
        name: plain(value, name, partial(_nested, SHORTHANDS.get(name, {}).values()))
        for name, value in parameters.items()
    }


def parameters_from_dict(document: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return parameters for the constructor, without those that were not stored."""
    params, current = {}, current_parameters(document)
    record({}, dict.fromkeys(names, anything))(current, "parameters")
    for name, value in current.items():
        if value == CUSTOM:
            continue
        if isinstance(value, Mapping):
            params[name] = _nested_from_dict(name, value)
        else:
            _plain(value, f"parameters.{name}")
            params[name] = _as_tuple(value)
    return params


def _plain(value: object, place: str) -> None:
    if isinstance(value, list) and place == "parameters.bounds":
        list_of(optional(number()), 2, 2)(value, place)
    elif isinstance(value, list):
        list_of(whole(1, 10**6))(value, place)
    elif not isinstance(value, str | bool | NoneType):
        number(-1e18, 1e18)(value, place)


def _nested_from_dict(name: str, value: Mapping[str, Any]) -> BaseEstimator:
    """Make a loss, network or optimizer from its parameters."""
    place = f"parameters.{name}"
    kinds = {kind.__name__: kind for kind in SHORTHANDS.get(name, {}).values()}
    kind = kinds.get(value.get("kind")) if isinstance(value.get("kind"), str) else None
    if kind is None:
        refuse(f"{place}.kind", f"one of {sorted(kinds)}", value.get("kind"))
    params = {k: v for k, v in value.items() if k != "kind"}
    record({}, dict.fromkeys(kind._get_param_names(), _plain))(params, place)
    nested = kind(**{k: _as_tuple(v) for k, v in params.items()})
    validated(nested, place)
    return nested


def validated(estimator: BaseEstimator, place: str) -> None:
    """Raise SchemaError if parameters violate the estimator's constraints."""
    try:
        estimator._validate_params()
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{place}: {error}") from None


def _nested(kinds: Collection[type], value: Any) -> Any:
    """Return a nested object of a known class as JSON, and any other as a mark."""
    if type(value) not in kinds:
        return CUSTOM
    return {"kind": type(value).__name__} | parameters_to_dict(value.get_params(deep=False))


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
