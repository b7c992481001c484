# Written by tools/unasync.py from src/python_executor/_async/__init__.py. Do not edit.
