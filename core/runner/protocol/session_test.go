package protocol

import (
	"errors"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAReplyOfASessionCarriesItsErrorWhole(t *testing.T) {
	t.Parallel()
	if err := (SessionReply{Message: "all is well"}).Err(); err != nil {
		t.Errorf("a reply without a code is the error %v", err)
	}
	err := SessionReply{Code: executor.NotFound, Message: "no such file", Field: "path"}.Err()
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || e.Code != executor.NotFound || len(e.Fields) != 1 || e.Fields[0] != (executor.FieldError{Field: "path", Message: "no such file"}) {
		t.Errorf("the error of a field is %#v", err)
	}
	err = SessionReply{Code: executor.Conflict, Message: "100% full"}.Err()
	if e, ok = errors.AsType[*executor.Error](err); !ok || e.Code != executor.Conflict || e.Message != "100% full" || len(e.Fields) != 0 {
		t.Errorf("the error of no field is %#v", err)
	}
}
