"""Functions of SciPy and estimators and metrics of scikit-learn compute on tensors, through the Python Array API standard, and
give the results that they give for NumPy's arrays. Needs numpy, scipy, scikit-learn and array_api_compat."""
import os

os.environ["SCIPY_ARRAY_API"] = "1"

import array_api_compat
import numpy as np
import sklearn
from scipy import cluster, integrate, signal, special, stats
from sklearn import metrics, preprocessing
from sklearn.metrics import pairwise

import gradus as gd

sklearn.set_config(array_api_dispatch=True)

rng = np.random.default_rng(0)
data = rng.random((40, 5))

SCIPY = {
    "zscore": lambda x: stats.zscore(x, axis=0), "gmean": lambda x: stats.gmean(x + 1, axis=0),
    "hmean": lambda x: stats.hmean(x + 1, axis=0), "moment": lambda x: stats.moment(x, 2, axis=0),
    "skew": lambda x: stats.skew(x, axis=0), "kurtosis": lambda x: stats.kurtosis(x, axis=0),
    "sem": lambda x: stats.sem(x, axis=0), "ttest_1samp": lambda x: stats.ttest_1samp(x, 0.5, axis=0).statistic,
    "pearsonr": lambda x: stats.pearsonr(x[:, 0], x[:, 1]).statistic, "logsumexp": lambda x: special.logsumexp(x, axis=1),
    "softmax": lambda x: special.softmax(x, axis=1), "expit": special.expit, "entr": special.entr,
    "xlogy": lambda x: special.xlogy(x, x), "erf": special.erf, "trapezoid": lambda x: integrate.trapezoid(x, axis=0),
    "cumulative_trapezoid": lambda x: integrate.cumulative_trapezoid(x, axis=0), "whiten": cluster.vq.whiten,
    "detrend": lambda x: signal.detrend(x, axis=0, type="constant"),
}
LEARN = {
    "MinMaxScaler": lambda x: preprocessing.MinMaxScaler().fit_transform(x),
    "MaxAbsScaler": lambda x: preprocessing.MaxAbsScaler().fit_transform(x),
    "StandardScaler": lambda x: preprocessing.StandardScaler().fit_transform(x),
    "Normalizer": lambda x: preprocessing.Normalizer().fit_transform(x),
    "PolynomialFeatures": lambda x: preprocessing.PolynomialFeatures().fit_transform(x),
    "Binarizer": lambda x: preprocessing.Binarizer(threshold=0.5).fit_transform(x),
    "KernelCenterer": lambda x: preprocessing.KernelCenterer().fit_transform(x[:5, :5]),
    "mean_squared_error": lambda x: metrics.mean_squared_error(x[:, 0], x[:, 1]),
    "mean_absolute_error": lambda x: metrics.mean_absolute_error(x[:, 0], x[:, 1]),
    "r2_score": lambda x: metrics.r2_score(x[:, 0], x[:, 1]),
    "mean_absolute_percentage_error": lambda x: metrics.mean_absolute_percentage_error(x[:, 0], x[:, 1]),
    "d2_tweedie_score": lambda x: metrics.d2_tweedie_score(x[:, 0], x[:, 1]),
    "cosine_similarity": pairwise.cosine_similarity,
    "euclidean_distances": lambda x: pairwise.euclidean_distances(x[:10], x[:5]),
    "rbf_kernel": lambda x: pairwise.rbf_kernel(x[:10], x[:5]),
}

passed = failed = 0


def check(name, good):
    global passed, failed
    passed, failed = passed + good, failed + (not good)
    if not good:
        print("FAILED", name)


x = gd.asarray(data)
check("array_namespace", array_api_compat.array_namespace(x) is gd)
check("is_array_api_obj", array_api_compat.is_array_api_obj(x))
check("device", array_api_compat.device(x) == "cpu")
check("size", array_api_compat.size(x) == 200)
for name, function in {**SCIPY, **LEARN}.items():
    try:
        result, expected = function(x), function(data)
        is_tensor = isinstance(result, gd.Tensor) or np.ndim(expected) == 0
        check(name, is_tensor and np.allclose(np.asarray(result), expected, rtol=1e-9))
    except Exception as error:
        check(f"{name}: {type(error).__name__}: {error}", False)
print(f"{passed} passed, {failed} failed")
raise SystemExit(failed > 0)
