"""Spoiled files, made once into the folder `bad` of the prepared one: scripts for the warm process, which has torch."""

ARRAYS = """
os.makedirs("bad", exist_ok=True)
pixels = np.load("outliers.npy")
for name, array in {
    "floats": pixels / 255.0,
    "signed": pixels.astype(np.int8),
    "flat": pixels.reshape(-1),
    "grey": pixels[..., 0],
    "five": pixels[None],
    "alpha": pixels.repeat(2, axis=3)[..., :4],
    "oblong": pixels[:, :8],
    "none": pixels[:0],
    "no-width": pixels[:, :0, :0],
    "number": np.uint8(3),
    "words": np.array(["a", "b"]),
    "records": np.zeros(3, [("a", "u1"), ("b", "f4")]),
    "swapped": pixels.astype(">u2"),
}.items():
    np.save(f"bad/{name}.npy", array)
np.save("bad/objects.npy", np.array([pixels, None], dtype=object), allow_pickle=True)
np.savez("bad/zipped.npz", pixels)
os.rename("bad/zipped.npz", "bad/zipped.npy")
whole = Path("outliers.npy").read_bytes()
for length in (0, 5, 10, 60, 128, 129, len(whole) - 1):
    Path(f"bad/cut{length}.npy").write_bytes(whole[:length])
shapes = {"huge": (10**18, 16, 16, 3), "overflow": (2**62, 2**62, 3, 3), "negative": (-1, 16, 16, 3)}
for name, shape in shapes.items():
    header = repr({"descr": "|u1", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\\n"
    Path(f"bad/{name}.npy").write_bytes(b"\\x93NUMPY\\x01\\x00" + struct.pack("<H", len(header)) + header + bytes(100))
texts = {"code": "__import__('os').mkdir('pwned')", "nested": "(" * 50000, "empty": "", "list": "[1]"}
for name, text in texts.items():
    header = text.encode() + b"\\n"
    Path(f"bad/{name}.npy").write_bytes(b"\\x93NUMPY\\x02\\x00" + struct.pack("<I", len(header)) + header)
Path("bad/random.npy").write_bytes(np.random.default_rng(0).bytes(5000))
"""

PICTURES = """
os.makedirs("bad", exist_ok=True)
png = Path("good.png").read_bytes()
Path("bad/empty.png").write_bytes(b"")
Path("bad/cut.png").write_bytes(png[:len(png) // 2])
Path("bad/header.png").write_bytes(png[:20])
Path("bad/text.png").write_text("no picture")
Path("bad/flipped.png").write_bytes(png[:60] + bytes([png[60] ^ 255]) + png[61:])
Path("bad/bomb.png").write_bytes(png[:16] + struct.pack(">II", 60000, 60000) + png[24:])
Path("bad/zero.png").write_bytes(png[:16] + struct.pack(">II", 0, 0) + png[24:])
Path("bad/random.jpg").write_bytes(b"\\xff\\xd8\\xff" + np.random.default_rng(0).bytes(3000))
Path("bad/script.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\\n%%BoundingBox: 0 0 9 9\\n(x) run\\n")
Image.fromarray(np.full((4, 4), 0.5, np.float32)).save("bad/float.tiff")
Image.fromarray(np.full((4, 4), -5, np.int32)).save("bad/signed.tiff")
Image.new("1", (1, 1)).save("bad/one.png")
Image.new("RGB", (3000, 1)).save("bad/thin.png")
Path("bad/format.ppm").write_bytes(b"P6 4000000000 4000000000 255 x")
Path("bad/picture.npy.png").write_bytes(Path("outliers.npy").read_bytes())
"""

CHECKPOINTS = """
os.makedirs("bad", exist_ok=True)
good = load_file("run/net.safetensors")
first = next(name for name, value in good.items() if value.ndim == 4)

class Trap:
    def __reduce__(self):
        return os.mkdir, ("pwned",)

class Swelling:
    def __reduce__(self):
        return bytearray, (10**12,)

class Foreign:
    pass

for name, content in {
    "nothing": {},
    "number": 5,
    "list": [1, 2],
    "none": None,
    "names": {"x": "y"},
    "keys": {5: torch.zeros(3)},
    "nested": {"state_dict": {"model": {"net": {}}}},
    "prefix": {f"net.{name}": value for name, value in good.items()},
    "one-prefix": {name if i else f"module.{name}": value for i, (name, value) in enumerate(good.items())},
    "tensor": torch.zeros(3),
    "sparse": {name: value.to_sparse() for name, value in good.items()},
    "meta": {name: value.to("meta") for name, value in good.items()},
    "complex": {name: value.cfloat() if value.is_floating_point() else value for name, value in good.items()},
    "integers": {name: value.int() for name, value in good.items()},
    "bools": {name: value.bool() for name, value in good.items()},
    "half": {name: value.half() if value.is_floating_point() else value for name, value in good.items()},
    "quantised": {name: torch.quantize_per_tensor(value, 0.1, 0, torch.qint8) if value.is_floating_point() else value
                  for name, value in good.items()},
    "expanded": {name: torch.zeros(()).expand(value.shape) for name, value in good.items()},
    "nan": {**good, first: good[first] * float("nan")},
    "lacks": {name: value for name, value in good.items() if name != first},
    "more": {**good, "more": torch.zeros(3)},
    "shape": {**good, first: good[first][..., :1]},
    "empty-tensor": {**good, first: torch.zeros(0)},
    "trap": {"x": Trap()},
    "optimizer": torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=1).state_dict(),
    "whole": torch.nn.Linear(2, 2),
    "other-net": torch.nn.Linear(2, 2).state_dict(),
}.items():
    torch.save(content, f"bad/{name}.pt")
torch.save({"x": Swelling()}, "bad/swelling.pt")
torch.jit.script(torch.nn.Linear(2, 2)).save("bad/torchscript.pt")
torch.save({"x": torch.zeros(2**24)}, plain := io.BytesIO())  # more than a call may write
with zipfile.ZipFile(plain) as zeros, zipfile.ZipFile("bad/bomb.pt", "w", zipfile.ZIP_DEFLATED) as bomb:
    for name in zeros.namelist():
        bomb.writestr(name, zeros.read(name))
Path("bad/pickle.pt").write_bytes(pickle.dumps({"x": Trap()}))
Path("bad/protocol0.pt").write_bytes(b"cos\\nmkdir\\n(S'pwned'\\ntR.")
Path("bad/random.pt").write_bytes(np.random.default_rng(0).bytes(5000))
Path("bad/empty.pt").write_bytes(b"")
Path("bad/text.pt").write_text("hello")
Path("bad/cut.pt").write_bytes(Path("checkpoint.pt").read_bytes()[:3000])
Path("bad/script.pt").write_text("print('x')")
with zipfile.ZipFile("bad/zip.pt", "w") as file:
    file.writestr("archive/data.pkl", pickle.dumps({"x": Trap()}))
for name, metadata in {
    "x": "x",
    "null": "null",
    "list": "[]",
    "empty": "{}",
    "deep": "[" * 50000,
    "format": '{"format": 5, "version": 1}',
    "version": '{"format": "macs-net", "version": "x"}',
    "newer": '{"format": "macs-net", "version": 99}',
    "name": '{"format": "macs-net", "version": 1, "name": 5}',
    "classes": '{"format": "macs-net", "version": 1, "name": "wrn-10-1", "classes": -1}',
    "dropout": '{"format": "macs-net", "version": 1, "name": "wrn-10-1", "classes": 3, "dropout": NaN}',
    "extra": '{"format": "macs-net", "version": 1, "name": "wrn-10-1", "classes": 3, "more": 1}',
}.items():
    save_file(good, f"bad/label-{name}.safetensors", {"macs": metadata})
"""

STATES = """
os.makedirs("bad", exist_ok=True)
state = torch.load("interrupted/state.pt", weights_only=True)
for key in state:
    torch.save({name: value for name, value in state.items() if name != key}, f"bad/state-no-{key}.pt")
    for name, value in {"none": None, "number": 5, "text": "x", "list": [1], "dict": {"x": 1}, "empty": {}}.items():
        torch.save({**state, key: value}, f"bad/state-{key}-{name}.pt")
nan = {name: value * float("nan") if value.is_floating_point() else value for name, value in state["net"].items()}
torch.save({**state, "net": nan}, "bad/state-net-nan.pt")
torch.save({**state, "history": state["history"] * 9}, "bad/state-history-long.pt")
torch.save({**state, "history": [{**state["history"][0], "more": 1}]}, "bad/state-history-more.pt")
torch.save({**state, "net": nets.build("wrn-10-2", classes=3).state_dict()}, "bad/state-net-other.pt")
"""
