module github.com/python-executor/python-executor/tests

go 1.26.8
