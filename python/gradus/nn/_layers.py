"""The layers of the library as classes, as their records describe them. Those that need more have a class of the same
name in _recurrent.py, _attention.py, _losses.py and _more.py, which gradus.nn has in their place."""


def __getattr__(name):
    from gradus.nn import _records

    if name not in _records:
        raise AttributeError(f"module 'gradus.nn' has no attribute '{name}'")
    found = globals()[name] = _records.get(name)
    found._library_init = found.__init__
    return found
