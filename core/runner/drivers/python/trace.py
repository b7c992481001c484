# Tracebacks without the frames of the driver, in sessions and in programs.
def is_ours(frame):
    return frame.f_globals is globals() or frame.f_code in S.outer


def clean(error, seen):
    """Removes the driver's frames from the tracebacks of an error and of its causes."""
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, SyntaxError) and error.text is None and is_users(str(error.filename)):
            import linecache

            error.text = linecache.getline(error.filename, error.lineno or 0) or None  # the compiler had a tree instead of text
        frames = []
        tb = error.__traceback__
        while tb is not None:
            frames.append(tb)
            tb = tb.tb_next
        if frames and is_ours(frames[0].tb_frame):
            for i, tb in enumerate(frames):
                if is_users(tb.tb_frame.f_code.co_filename) and not is_ours(tb.tb_frame):
                    frames = frames[i:]
                    break
        chain = None
        for tb in reversed(frames):
            if not is_ours(tb.tb_frame):
                chain = type(tb)(chain, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
        error.__traceback__ = chain
        for sub in getattr(error, "exceptions", None) or ():
            if isinstance(sub, BaseException):
                clean(sub, seen)
        clean(error.__cause__, seen)
        error = error.__context__
