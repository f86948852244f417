"""The Python interface with values of the wrong kind: MacsError always, TypeError for a wrong signature alone."""

import pytest

from harness import Call, Case, Outcome, check

pytestmark = pytest.mark.hostile

VALUES = ["None", "5", "'x'", "[]", "np.zeros(3)"]
PATHS = ["''", "'nul\\0'", "'x' * 5000", "5", "None", "'fifo'", "'loop'"]
ARRAYS = [
    "'x'",
    "5",
    "np.zeros(3)",
    "np.zeros((2, 4, 4, 3))",
    "np.zeros((0, 4, 4, 3), 'u1')",
    "np.zeros((2, 4, 5, 3), 'u1')",
]
ARRAYS += ["np.array([None])", "[[1, 2], [3]]", "torch.zeros(2, 4, 4, 3)", "None"]
NUMBERS = ["'x'", "None", "float('nan')", "-1", "2", "np.zeros(3)"]
MARGINS = ["'x'", "None", "float('nan')", "-1", "float('inf')", "np.zeros(3)"]  # of energies it may be 2

# Each {} stands for one hostile value; the rest of the line is in order.
LINES: list[tuple[str, list[str]]] = [
    ("ImageSet.from_array({})", ARRAYS),
    ("ImageSet('x', {})", ARRAYS),
    (
        "ImageSet.from_array(images().pixels, {})",
        ["'x'", "5", "[0]", "np.zeros(12)", "[-1] * 12", "[10**30] * 12", "[None] * 12"],
    ),
    ("ImageSet.from_array(images().pixels, images().labels, {})", ["5", "('a',)", "(1, 2, 3)", "('a', 'a', 'a')"]),
    ("ImageSet.from_folder({})", PATHS),
    ("ImageSet.from_folder('unknown', {})", ["'x'", "0", "-1", "1.5", "10**30", "float('nan')"]),
    (
        "ImageSet.from_files({})",
        ["5", "None", "[]", "[5]", "['nowhere.png']", "['fifo.png']", "['']", "['nul\\0.png']"],
    ),
    ("ImageSet.from_list({})", [*PATHS, "'file.txt'", "'unknown'"]),
    ("ImageSet.from_list('file.txt', root={})", ["5", "''", "'nul\\0'", "'nowhere'"]),
    ("ImageSet.from_dataset({})", [*VALUES, "torch.zeros(2, 3, 4, 4)", "[None]", "[()]", "images()", "object"]),
    ("ImageSet.from_dataset([torch.zeros(3, 4, 4, dtype=torch.uint8)], {})", ["'x'", "0", "1.5"]),
    ("ImageSet.from_hf({})", ["None", "5", "[]", "np.zeros(3)", "''", "'nul\\0'", "images()"]),
    ("images().subset({})", ["'x'", "[99]", "[-99]", "[1.5]", "[None]", "[[1], [2]]", "np.ones(5, bool)", "[]"]),
    (
        "images().split({})",
        ["'x'", "None", "0", "-1", "12", "0.0", "1.0", "float('nan')", "float('inf')", "1e300", "[]"],
    ),
    ("images().split(3, seed={})", ["'x'", "-1", "1.5", "[]"]),
    ("images().resized({})", ["'x'", "None", "0", "-1", "1.5", "float('nan')", "10**30"]),
    ("macs.data.load({})", [*PATHS, "b'x'", "np.zeros(3)"]),
    ("macs.data.load('mine', {})", ["'x'", "None", "5", "'../run'"]),
    ("macs.data.load('mine', 'test', size={})", ["'x'", "0", "-1", "1.5"]),
    ("macs.data.load('cifar10', root={})", ["5", "'nul\\0'", "'x' * 5000", "'loop'"]),
    (
        "nets.build({}, classes=3)",
        ["None", "5", "''", "'x'", "'wrn'", "'wrn-x-1'", "'wrn-10-' + '9' * 30", "'own:x'", "[]"],
    ),
    ("nets.build(NET, classes={})", ["None", "'x'", "0", "1", "-1", "1.5", "10**30", "float('nan')", "[]"]),
    ("nets.build(NET, classes=3, dropout={})", ["'x'", "-1", "1", "2", "float('nan')", "[]"]),
    ("nets.load({}, NET, classes=3)", PATHS),
    (
        "nets.save(net(), {})",
        ["''", "'nul\\0'", "5", "None", "'x'", "'run/net.safetensors'", "'file.txt/x.safetensors'"],
    ),
    ("nets.save({}, 'new.safetensors')", VALUES),
    ("TrainingOptions.from_toml({})", PATHS),
    (
        "Recipe(epochs={})",
        ["'x'", "None", "0", "-1", "1.5", "True", "float('nan')", "float('inf')", "[]", "np.zeros(3)"],
    ),
    ("Recipe(lr={})", ["'x'", "None", "-1", "True", "float('nan')", "float('inf')", "[]", "10**400", "1j"]),
    ("Recipe(options={})", ["'x'", "None", "[]", "{'weight': None}"]),
    ("TrainingOptions(method={})", ["'x'", "None", "5", "''", "[]"]),
    ("macs.pretrain({}, images())", VALUES),
    ("macs.pretrain(net(), {})", VALUES),
    ("macs.pretrain(net(), images(), recipe={})", VALUES[1:]),
    (
        "macs.pretrain(net(), images(), recipe=Recipe(epochs=1), run={})",
        ["''", "'nul\\0'", "5", "'file.txt'", "'run'", "'x' * 5000"],
    ),
    ("macs.finetune(net(), images(), {}, recipe=Recipe(epochs=1))", VALUES),
    ("macs.finetune(net(), images(), noise(9, 1), method={})", ["'x'", "5", "[]", "object()"]),
    ("macs.evaluate({}, images(), dict(x=noise(9, 1)))", VALUES),
    ("macs.evaluate(net(), {}, dict(x=noise(9, 1)))", VALUES),
    ("macs.evaluate(net(), images(), {})", ["None", "5", "'x'", "[]", "{}", "{'x': None}", "{'x': 5}", "images()"]),
    ("macs.evaluate(net(), images(), dict(x=noise(9, 1)), score={})", ["None", "5", "'x'", "''", "[]", "object()"]),
    (
        "macs.evaluate(net(), images(), dict(x=noise(9, 1)), trials={})",
        ["'x'", "None", "0", "-1", "1.5", "float('nan')"],
    ),
    ("macs.evaluate(net(), images(), dict(x=noise(9, 1)), share={})", NUMBERS),
    ("Detector({})", VALUES),
    ("Detector(net(), {})", ["None", "5", "''", "'x'", "[]", "object()"]),
    ("Detector(net()).calibrate({})", VALUES),
    ("Detector(net()).calibrate(stripes(50, 1), keep={})", NUMBERS),
    ("Detector(net()).calibrate(stripes(50, 1), outliers={})", ["5", "'x'", "[1]", "{'x': None}", "{'x': 5}"]),
    ("Detector(net()).calibrate(stripes(50, 1), check={})", ["5", "'x'", "[1]", "0.5"]),
    ("Detector(net()).predict(images())", [""]),
    ("Detector(net()).save('new.safetensors')", [""]),
    ("Detector.load({})", PATHS),
    ("Detector.load('detector.safetensors', net={})", ["5", "'x'", "[1]", "'own:Nothing'", "torch.nn.Linear(2, 2)"]),
    ("Detector.load('detector.safetensors').predict({})", [each for each in ARRAYS if "5, 3" not in each]),
    (
        "Detector.load('detector.safetensors').predict(images(), threshold={})",
        ["'x'", "float('nan')", "float('inf')", "[]", "1j"],
    ),
    ("list(Detector.load('detector.safetensors').predict_files({}))", ["5", "None"]),
    ("Detector.load('detector.safetensors').save({})", ["''", "'nul\\0'", "5", "None", "'x'", "'run/net.safetensors'"]),
    ("Detector.load('detector.safetensors').export({})", ["''", "'nul\\0'", "5", "None", "'x'", "'file.txt/x.onnx'"]),
    (
        "metrics.ood_metrics({}, [0.5])",
        ["None", "'x'", "[]", "['x']", "[None]", "[[1]]", "[float('nan')]", "5", "{}", "[1j]"],
    ),
    ("metrics.ood_metrics([0.5], [0.5], {})", ["None", "'x'", "5", "[]"]),
    ("Protocol(share={})", NUMBERS),
    ("Protocol(trials={})", ["'x'", "None", "0", "-1", "1.5"]),
    ("losses.mcd({}, torch.zeros(3))", ["torch.zeros(3, 3)", "torch.zeros(())"]),
    ("losses.mcd(torch.zeros(3), torch.zeros(3), {})", ["None", "'x'", "5", "[]"]),
    ("losses.macs_penalty(torch.zeros(3), torch.zeros(3), {})", MARGINS),
    ("losses.hinge_penalty(torch.zeros(3), torch.zeros(3), {})", MARGINS),
    (
        "macs.report.write({}, net(), images(), dict(x=noise(9, 1)))",
        ["''", "'nul\\0'", "5", "None", "'file.txt/x'", "'run/state.pt'"],
    ),
    ("macs.scores.get({})", ["None", "5", "''", "'x'", "[]", "'own:Own'", "'nowhere:X'"]),
]
SIGNATURES = [
    "macs.evaluate()",
    "macs.pretrain()",
    "Detector()",
    "Recipe(epoch=1)",
    "metrics.ood_metrics()",
    "nets.build()",
]
SIGNATURES += ["macs.finetune(1, 2, 3, 4)", "ImageSet()", "losses.mcd()", "macs.data.load()"]
CASES = [
    # A wrong type may be Python's own TypeError; anything else is one of our sentences.
    Case(Call(python=line.replace("{}", value, 1)), (2, 3), name=line.replace("{}", value, 1))
    for line, values in LINES
    for value in values
]
CASES += [Case(Call(python=line), (3,), name=line) for line in SIGNATURES]


def test_a_wrong_value_gets_a_sentence(case: Case, outcome: Outcome) -> None:
    if case.codes == (3,):
        assert outcome.code == 3 and outcome.err.startswith("TypeError: ")
    else:
        check(outcome, case)
