"""Models as scikit-learn's, LightGBM's and XGBoost's converters write them, against the libraries that made them.

They run in an environment of their own: `make converters-test`.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle

pytest.importorskip("skl2onnx")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
pandas = pytest.importorskip("pandas")

import onnx  # noqa: E402
import onnxmltools  # noqa: E402
from onnx import helper  # noqa: E402
from onnxmltools.convert.common.data_types import FloatTensorType as ToolsFloats  # noqa: E402
from skl2onnx import to_onnx  # noqa: E402
from skl2onnx.common.data_types import FloatTensorType, StringTensorType  # noqa: E402
from sklearn import (  # noqa: E402
    compose,
    datasets,
    ensemble,
    feature_extraction,
    gaussian_process,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

X, Y = datasets.load_iris(return_X_y=True)
X = X.astype(np.float32)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]
ML = "ai.onnx.ml"
OPSET = {"": 18, "ai.onnx.ml": 3}


def run(model: Any, *args: Any) -> Any:
    """Compiled, saved, loaded, verified."""
    data = treadle.compile(model, progress=False).as_bytes()
    return treadle.VirtualMachine(treadle.load(data))["main"](*args)


def check_classifier(found: Any, labels: np.ndarray, probabilities: np.ndarray, classes: np.ndarray) -> None:
    """A label a row, and a dict of probabilities by label."""
    label, rows = found
    assert label.numpy().tolist() == labels.tolist()
    assert isinstance(rows, list)
    assert [list(row) for row in rows] == [classes.tolist()] * len(labels)
    np.testing.assert_allclose([list(row.values()) for row in rows], probabilities, rtol=2e-4, atol=2e-5)


CLASSIFIERS = {
    "logistic regression": lambda: linear_model.LogisticRegression(max_iter=500),
    "decision tree": lambda: tree.DecisionTreeClassifier(max_depth=4, random_state=0),
    "random forest": lambda: ensemble.RandomForestClassifier(20, random_state=0),
    "gradient boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0),
    "support vectors": lambda: svm.SVC(probability=True, random_state=0),
    "naive Bayes": lambda: naive_bayes.GaussianNB(),
    "neural network": lambda: neural_network.MLPClassifier((8,), max_iter=200, random_state=0),
    "scaled": lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("labels", ["texts", "numbers", "two texts"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_give_a_label_and_a_dict_for_each_row(name: str, labels: str) -> None:
    x, y = (X, Y) if labels == "numbers" else (X, NAMES)
    if labels == "two texts":
        x, y = x[:100], y[:100]
    model = CLASSIFIERS[name]().fit(x, y)
    content = to_onnx(model, x[:1], target_opset=OPSET)
    check_classifier(run(content, x), model.predict(x), model.predict_proba(x), model.classes_)


TEXTS = ["the cat sat on the mat", "a dog", "the dog sat", "cats and dogs", "on a mat a cat", "no animals here"] * 3
KINDS = ["cat", "dog", "dog", "both", "cat", "none"] * 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("kind", ["TfidfVectorizer", "CountVectorizer"])
def test_a_pipeline_from_text_to_label(kind: str, most: int) -> None:
    """StringSplit, TfIdfVectorizer, Normalizer, LinearClassifier, ZipMap. The converter's own form has an operator of
    onnxruntime's that splits texts."""
    words = getattr(feature_extraction.text, kind)(
        ngram_range=(1, most), tokenizer=str.split, token_pattern=None, lowercase=False
    )
    model = pipeline.make_pipeline(words, linear_model.LogisticRegression()).fit(TEXTS, KINDS)
    line = model.steps[-1][1]
    grams = sorted(words.vocabulary_, key=lambda gram: (gram.count(" "), gram))
    singles = sum(" " not in gram for gram in grams)
    places = [words.vocabulary_[gram] for gram in grams]
    is_weighted = kind == "TfidfVectorizer"
    make = helper.make_node
    nodes = [
        make("StringSplit", ["x"], ["tokens", "counts"]),
        make(
            *("TfIdfVectorizer", ["tokens"], ["grams"]),
            mode="TFIDF" if is_weighted else "TF",
            min_gram_length=1,
            max_gram_length=most,
            max_skip_count=0,
            ngram_indexes=places,
            pool_strings=[token for gram in grams for token in gram.split()],
            ngram_counts=[0, singles][:most],
            **({"weights": words.idf_[places].tolist()} if is_weighted else {}),
        ),
        make("Normalizer", ["grams"], ["normal"], domain=ML, norm="L2")
        if is_weighted
        else make("Identity", ["grams"], ["normal"]),
        make(
            *("LinearClassifier", ["normal"], ["label", "scores"]),
            domain=ML,
            classlabels_strings=line.classes_.tolist(),
            coefficients=line.coef_.reshape(-1).tolist(),
            intercepts=line.intercept_.tolist(),
            post_transform="SOFTMAX",
        ),
        make("ZipMap", ["scores"], ["rows"], domain=ML, classlabels_strings=line.classes_.tolist()),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("label", "rows")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 8, ["n"])], outputs)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 3)]
    found = run(helper.make_model(graph, opset_imports=opsets), np.array(TEXTS, object))
    check_classifier(found, model.predict(TEXTS), model.predict_proba(TEXTS), model.classes_)


VECTORIZERS = {
    "words": {},
    "characters": {"analyzer": "char", "ngram_range": (2, 3)},
    "own tokens": {"token_pattern": "[a-z]+"},
    "stop words": {"stop_words": ["the", "on"]},
    "as they are": {"lowercase": False},
    "pairs of words": {"ngram_range": (1, 2), "token_pattern": "[a-zA-Z0-9_]+"},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", VECTORIZERS)
def test_a_pipeline_from_text_to_label_as_the_converter_writes_it(name: str) -> None:
    """With onnxruntime's Tokenizer, whose regular expressions find the tokens."""
    words = feature_extraction.text.TfidfVectorizer(**VECTORIZERS[name])
    model = pipeline.make_pipeline(words, linear_model.LogisticRegression()).fit(TEXTS, KINDS)
    content = to_onnx(model, initial_types=[("x", StringTensorType([None]))], target_opset=OPSET)
    others = ["The Cat's mat!", "dogs, cats & \u00e9t\u00e9", "", "unknown", *TEXTS]
    check_classifier(
        run(content, np.array(others, object)), model.predict(others), model.predict_proba(others), model.classes_
    )


LINES = {
    "logistic regression": linear_model.LogisticRegression(),
    "naive Bayes": naive_bayes.MultinomialNB(),
    "descent": linear_model.SGDClassifier(loss="log_loss", random_state=0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LINES)
def test_the_host_is_not_asked_for_labels_of_texts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = pipeline.make_pipeline(feature_extraction.text.CountVectorizer(), LINES[name]).fit(TEXTS, KINDS)
    content = to_onnx(model, initial_types=[("x", StringTensorType([None, 1]))], target_opset=OPSET)
    main = treadle.VirtualMachine(treadle.compile(content, progress=False))["main"]
    monkeypatch.setattr("treadle.vm.calls.perform", None)
    for texts in (TEXTS, TEXTS[:1]):
        labels = main(np.array(texts, object)[:, None])[0]
        assert labels.numpy().reshape(-1).tolist() == model.predict(texts).tolist()


@pytest.mark.filterwarnings("ignore")
def test_a_gaussian_process_that_classifies() -> None:
    x, y = X[:100], Y[:100]
    model = gaussian_process.GaussianProcessClassifier().fit(x, y)
    labels, rows = run(to_onnx(model, x[:1], target_opset=OPSET), x)
    assert labels.numpy().reshape(-1).tolist() == model.predict(x).tolist()
    np.testing.assert_allclose([list(row.values()) for row in rows], model.predict_proba(x), atol=1e-3)  # in float32


@pytest.mark.filterwarnings("ignore")
def test_hashed_texts() -> None:
    rows = np.array([["cat"], ["dog"], [""], ["\u00e9t\u00e9"]], object)
    model = feature_extraction.FeatureHasher(8, input_type="string").fit(rows)
    content = to_onnx(model, initial_types=[("x", StringTensorType([None, 1]))], target_opset=OPSET)
    np.testing.assert_array_equal(run(content, rows).numpy(), model.transform(rows).toarray())


@pytest.mark.filterwarnings("ignore")
def test_columns_of_texts_and_numbers_are_encoded_filled_in_scaled_and_classified() -> None:
    random = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "town": random.choice(["Bonn", "Köln", "Ulm"], 60),
            "grade": random.choice(["a", "b"], 60),
            "size": random.random(60).astype(np.float32),
            "rooms": random.integers(1, 5, 60).astype(np.float32),
        }
    )
    frame.loc[::7, "size"] = np.nan
    label = np.where((frame["town"] == "Ulm") ^ (frame["rooms"] > 2), "dear", "cheap")
    numbers = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    columns = compose.ColumnTransformer(
        [
            ("numbers", numbers, ["size", "rooms"]),
            ("texts", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["town", "grade"]),
        ]
    )
    model = pipeline.make_pipeline(columns, linear_model.LogisticRegression()).fit(frame, label)
    types = [
        (name, StringTensorType([None, 1]) if name in ("town", "grade") else FloatTensorType([None, 1]))
        for name in frame.columns
    ]
    content = to_onnx(model, initial_types=types, target_opset=OPSET)
    arguments = [
        frame[name].to_numpy(object if name in ("town", "grade") else np.float32)[:, None] for name in frame.columns
    ]
    check_classifier(run(content, *arguments), model.predict(frame), model.predict_proba(frame), model.classes_)


ENCODERS = {
    "ordinal": lambda: preprocessing.OrdinalEncoder(),
    "one hot": lambda: preprocessing.OneHotEncoder(handle_unknown="ignore"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_of_texts(name: str) -> None:
    table = np.array([["a", "x"], ["ü", "y"], ["", "x"], ["a", "z"]], object)
    model = ENCODERS[name]().fit(table)
    content = to_onnx(model, initial_types=[("x", StringTensorType([None, 2]))], target_opset=OPSET)
    expected = model.transform(table)
    found = run(content, table).numpy()
    np.testing.assert_array_equal(found, expected.toarray() if hasattr(expected, "toarray") else expected)


@pytest.mark.filterwarnings("ignore")
def test_label_encoders_there() -> None:
    model = preprocessing.LabelEncoder().fit(NAMES)
    content = to_onnx(model, initial_types=[("x", StringTensorType([None]))], target_opset=OPSET)
    assert run(content, NAMES).numpy().reshape(-1).tolist() == Y.tolist()


REGRESSORS = {
    "linear": lambda: linear_model.LinearRegression(),
    "forest": lambda: ensemble.RandomForestRegressor(10, random_state=0),
    "neighbours": lambda: neighbors.KNeighborsRegressor(3),
    "scaled": lambda: pipeline.make_pipeline(preprocessing.MinMaxScaler(), linear_model.Ridge()),
    "polynomials": lambda: pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name: str) -> None:
    random = np.random.default_rng(0)  # no two rows are alike: neighbours as near as each other are in no order
    x, y = random.random((120, 3), np.float32), random.random(120)
    model = REGRESSORS[name]().fit(x, y)
    content = to_onnx(model, x[:1], target_opset=OPSET)
    np.testing.assert_allclose(run(content, x).numpy().reshape(-1), model.predict(x), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_boosted_trees_of_other_libraries(library: str, classes: int) -> None:
    x, y = (X, Y) if classes == 3 else (X[:100], Y[:100])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if library == "lightgbm":
            model = lightgbm.LGBMClassifier(n_estimators=8, verbose=-1).fit(x, y)
            content = onnxmltools.convert_lightgbm(
                model, initial_types=[("x", ToolsFloats([None, 4]))], target_opset=15, zipmap=True
            )
        else:
            model = xgboost.XGBClassifier(n_estimators=8).fit(x, y)
            content = onnxmltools.convert_xgboost(model, initial_types=[("x", ToolsFloats([None, 4]))], target_opset=15)
    label, scores = run(content, x)
    assert label.numpy().tolist() == model.predict(x).tolist()
    if isinstance(scores, list):
        assert [list(row) for row in scores] == [list(range(classes))] * len(x)
        scores = [list(row.values()) for row in scores]
    np.testing.assert_allclose(np.asarray(scores), model.predict_proba(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["scikit-learn", "lightgbm", "xgboost"])
def test_fitted_models_and_their_files_are_compiled_as_they_are(kind: str, tmp_path: Path) -> None:
    if kind == "scikit-learn":
        model = linear_model.LogisticRegression(max_iter=500).fit(X, Y)
        models: list[Any] = [model]
    elif kind == "lightgbm":
        model = lightgbm.LGBMClassifier(n_estimators=4, verbose=-1).fit(X, Y)
        models = [model, model.booster_, tmp_path / "model.txt"]
        model.booster_.save_model(models[-1])
    else:
        model = xgboost.XGBClassifier(n_estimators=4).fit(X, Y)
        models = [model, tmp_path / "model.json", tmp_path / "model.ubj"]
        for path in models[1:]:
            model.get_booster().save_model(path)
    for each in models:
        assert run(each, X)[0].numpy().tolist() == model.predict(X).tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [1, 3, 5])
def test_missing_numbers_are_those_of_neighbours(count: int) -> None:
    """The converter's graph has tensors of ranks that branches decide. Numbers at random: no two neighbours are equally near."""
    rng = np.random.default_rng(0)
    rows, others = (rng.normal(size=(size, 4)).astype(np.float32) for size in (120, 1000))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    others[np.arange(1000), rng.integers(0, 4, 1000)] = np.nan
    imputer = impute.KNNImputer(n_neighbors=count).fit(rows)
    model = to_onnx(imputer, rows[:1], target_opset=OPSET)
    machine = treadle.VirtualMachine(treadle.load(treadle.compile(model, progress=False).as_bytes()))
    for few in (others, others[:1], np.ones((2, 4), np.float32)):
        np.testing.assert_allclose(machine["main"](few).numpy(), imputer.transform(few), rtol=1e-5, atol=1e-5)
