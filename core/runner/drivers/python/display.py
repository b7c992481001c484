# Values, figures, and their forms. See control.py.
IMAGES = (".png", ".jpeg", ".gif", ".pdf")
# The rich forms, by priority for the room of a display.
FORMS = (
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_javascript_", "application/javascript"),
)
MAX_TEXT = 256 << 10


# Values.


def encode(mime, value):
    """Returns a form as bytes, or None if value is not a form."""
    if isinstance(value, tuple) and value:
        value = value[0]  # (data, metadata)
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        if mime.startswith("image/") and mime != "image/svg+xml" or mime == "application/pdf":
            import base64

            try:
                return base64.b64decode(value, validate=False)
            except ValueError:
                return None
        return value.encode("utf-8", "replace")
    if mime == "application/json" or mime.endswith("+json"):
        return json.dumps(value).encode()
    return None


def forms(value):
    """Returns the rich forms of value, by priority for the room of a display."""
    found = {}
    kind = type(value)
    if isinstance(value, type):
        return found
    if callable(getattr(kind, "_repr_mimebundle_", None)):
        try:
            try:
                given = value._repr_mimebundle_(include=None, exclude=None)
            except TypeError:
                given = value._repr_mimebundle_()
            if isinstance(given, tuple):
                given = given[0]
            given = list((given or {}).items())
        except Exception:
            given = ()
        for mime, data in given:
            try:
                data = encode(mime, data)
            except Exception:
                continue
            if data is not None:
                found[str(mime)] = data
    for method, mime in FORMS:
        if mime in found or not callable(getattr(kind, method, None)):
            continue
        try:
            data = encode(mime, getattr(value, method)())
        except Exception:
            continue
        if data is not None:
            found[mime] = data
    if is_figure(value) and drawn(value):
        found.update(render(value))
    return found


def show(value, is_value):
    """Displays value in all of its forms for which there is room."""
    if S.child:
        print(repr(value))
        return
    if S.displays >= S.max_displays:
        S.dropped += 1
        return
    if displays_itself(value):
        return
    found = forms(value)
    text = found.pop("text/plain", None)
    if text is None:
        try:
            text = repr(value)
        except Exception:
            if not found:
                raise
            text = "<%s>" % type(value).__name__  # its other forms are fine
        text = text.encode("utf-8", "backslashreplace")
    cut = len(text) > MAX_TEXT
    if cut:
        text = text[:MAX_TEXT].decode("utf-8", "ignore").encode() + "…".encode()
    emit(text, found, is_value, cut)


def emit(text, found, is_value, truncated=False):
    import binascii

    data, room = {}, S.max_data
    for mime, form in [("text/plain", text)] + list(found.items()):
        if len(form) > room or len(mime) > 200:
            truncated = True
            continue
        room -= len(form)
        data[mime] = binascii.b2a_base64(form, newline=False).decode()
    S.displays += 1
    flush()
    send({"op": "display", "n": S.cell, "display": {"data": data, "value": is_value, "truncated": truncated}})


def displays_itself(value):
    """Lets a value display itself where it can, as IPython does. It does so by calls of display."""
    method = None if isinstance(value, type) else getattr(type(value), "_ipython_display_", None)
    if not callable(method):
        return False
    try:
        value._ipython_display_()
    except Exception:
        return False
    return True


def display(*values, **options):
    """Shows each value in the richest form it has. With raw, values are dictionaries of forms."""
    for value in values:
        show(Bundle(value) if options.get("raw") and isinstance(value, dict) else value, False)


class Bundle:
    def __init__(self, forms):
        self.forms = forms

    def _repr_mimebundle_(self):
        return self.forms

    def __repr__(self):
        return str(self.forms.get("text/plain", "<display>"))


def displayhook(value):
    if value is None:
        return
    builtins._ = value
    show(value, True)


# Figures.


def is_figure(value):
    module = type(value).__module__
    return isinstance(module, str) and module.startswith("matplotlib.") and hasattr(value, "savefig") and hasattr(value, "canvas")


def drawn(figure):
    """Reports whether a figure has more than its background."""
    return len(figure.get_children()) > 1


def render(figure):
    found = {}
    for form, mime in (("png", "image/png"), ("svg", "image/svg+xml")):
        out = io.BytesIO()
        figure.savefig(out, format=form, bbox_inches="tight")
        found[mime] = out.getvalue()
    S.shown.append(figure)
    return found


def show_figures():
    """Displays the open figures, and closes them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or S.child:
        return
    get_fignums = getattr(pyplot, "get_fignums", None)
    if get_fignums is None or not get_fignums():
        return
    try:
        for number in get_fignums():
            figure = pyplot.figure(number)
            # savefig after show makes a figure that is not drawn.
            if drawn(figure) and not any(figure is other for other in S.shown):
                show(figure, False)
    finally:
        pyplot.close("all")
