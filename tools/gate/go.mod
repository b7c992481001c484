module github.com/python-executor/python-executor/tools/gate

go 1.26.8
