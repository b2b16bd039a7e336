"""Fitted models as JSON documents and arrays, and back; ``calipers.storage`` writes the folders."""

from calipers._serialization.banks import Arrays as Arrays, MissingCodeError as MissingCodeError
from calipers._serialization.ensembles import (
    calibrations_from_dict as calibrations_from_dict,
    support_from_dict as support_from_dict,
)
from calipers._serialization.models import (
    ABSENT as ABSENT,
    check_model as check_model,
    model_from_dict as model_from_dict,
    model_to_dict as model_to_dict,
    stored_model as stored_model,
)
from calipers._serialization.parameters import parameters_from_dict as parameters_from_dict
