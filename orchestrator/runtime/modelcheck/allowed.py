"""Names that a pickle may use, by exact module and name. Nothing else is looked up, and no attribute paths.

The code of each entry was reviewed. A `NEW` class is created empty and its attributes are set, without
calling a method of its own. A `VALUE` is stored; the unpickler never calls it. In place of a `CALLED` one, a
function of rebuild.py is called, which checks the arguments. Excluded on purpose: pandas (its classes are
rebuilt by code that takes names from the pickle), trees, forests and neighbours (compiled code trusts the
indices in their state), random generators, functools.partial, operator.*, and every function of a library.
"""

from __future__ import annotations

from typing import Dict, FrozenSet

NEW: Dict[str, FrozenSet[str]] = {
    "sklearn.preprocessing._data": frozenset({
        "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "Normalizer", "Binarizer",
        "PowerTransformer", "QuantileTransformer",
    }),
    "sklearn.preprocessing._encoders": frozenset({"OneHotEncoder", "OrdinalEncoder"}),
    "sklearn.preprocessing._label": frozenset({"LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer"}),
    "sklearn.preprocessing._discretization": frozenset({"KBinsDiscretizer"}),
    "sklearn.preprocessing._polynomial": frozenset({"PolynomialFeatures"}),
    "sklearn.preprocessing._function_transformer": frozenset({"FunctionTransformer"}),
    "sklearn.impute._base": frozenset({"SimpleImputer", "MissingIndicator"}),
    "sklearn.pipeline": frozenset({"Pipeline", "FeatureUnion"}),
    "sklearn.compose._column_transformer": frozenset({"ColumnTransformer"}),
    "sklearn.feature_extraction.text": frozenset({"CountVectorizer", "TfidfVectorizer", "TfidfTransformer"}),
    "sklearn.feature_extraction._dict_vectorizer": frozenset({"DictVectorizer"}),
    "sklearn.decomposition._pca": frozenset({"PCA"}),
    "sklearn.decomposition._truncated_svd": frozenset({"TruncatedSVD"}),
    "sklearn.feature_selection._variance_threshold": frozenset({"VarianceThreshold"}),
    "sklearn.linear_model._base": frozenset({"LinearRegression"}),
    "sklearn.linear_model._ridge": frozenset({"Ridge"}),
    "sklearn.linear_model._logistic": frozenset({"LogisticRegression"}),
    "scipy.sparse._csr": frozenset({"csr_matrix", "csr_array"}),
    "scipy.sparse.csr": frozenset({"csr_matrix"}),
}  # fmt: skip
"""Classes that are created by `__new__` without arguments; then their attributes are set."""

_NUMBERS = frozenset({
    "bool_", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "complex64", "complex128", "str_", "bytes_", "object_",
})  # fmt: skip
_ELEMENTWISE = frozenset({
    "log", "log1p", "log2", "log10", "exp", "exp2", "expm1", "sqrt", "cbrt", "square", "reciprocal",
    "absolute", "abs", "fabs", "sign", "negative", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh",
    "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "floor", "ceil", "trunc", "rint", "deg2rad", "rad2deg",
})  # fmt: skip

VALUE: Dict[str, FrozenSet[str]] = {
    "builtins": frozenset({"int", "float", "str", "bytes", "bool", "object", "list", "dict", "set", "tuple",
                           "frozenset", "complex", "slice", "range", "bytearray"}),
    "numpy": _NUMBERS | _ELEMENTWISE | {"ndarray"},
    "numpy.core._multiarray_umath": _ELEMENTWISE,
    "numpy._core._multiarray_umath": _ELEMENTWISE,
}  # fmt: skip
"""Classes and element-wise functions that may be an attribute, or an argument, which is checked."""

CALLED: Dict[str, FrozenSet[str]] = {
    "collections": frozenset({"OrderedDict", "defaultdict", "Counter", "deque"}),
    "_codecs": frozenset({"encode"}),
    "datetime": frozenset({"date", "datetime", "time", "timedelta"}),
    "numpy": frozenset({"dtype"}),
    "numpy.core.multiarray": frozenset({"_reconstruct", "scalar"}),
    "numpy._core.multiarray": frozenset({"_reconstruct", "scalar"}),
    "numpy.core.numeric": frozenset({"_frombuffer"}),
    "numpy._core.numeric": frozenset({"_frombuffer"}),
}
"""Callables that a pickle may name; for each, a function of rebuild.py is called instead."""
