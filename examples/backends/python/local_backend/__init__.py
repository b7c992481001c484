"""An example of a backend plugin in Python: it runs programs as plain processes of this machine."""
