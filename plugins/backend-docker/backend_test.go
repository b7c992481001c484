package dockerbackend

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAProgramRunsInAContainerOfItsOwn(t *testing.T) {
	b := backend(t, nil)
	out, r := succeeds(t, b, executor.Spec{Code: "import os; print(os.getuid(), os.getcwd(), os.listdir('/work'))"})
	if out != "1000 /work ['main.py', '.tmp']\n" && out != "1000 /work ['.tmp', 'main.py']\n" {
		t.Errorf("got %q", out)
	}
	t.Logf("%+v", r)
}
