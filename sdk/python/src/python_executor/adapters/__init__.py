"""Tools for agent frameworks: a model writes Python code, and a server runs it.

Each module is for one framework, which is installed with the extra of the same name: python_executor.adapters.langchain,
.openai, .pydantic_ai and .smolagents. All of them take a client, or a session, in which names and files stay between calls.
"""
