package mcpfrontend

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
)

func TestCallsOfOneOwnerLeaveRoomToOthers(t *testing.T) {
	t.Parallel()
	one, several := []auth.Token{{Owner: "a"}, {Owner: "a"}}, []auth.Token{{Owner: "a"}, {Owner: "b"}}
	fill := func(s *callSlots, owner string) (leaves []func(), refusal string) {
		for {
			leave, refusal := s.take(owner)
			if leave == nil {
				return leaves, refusal
			}
			leaves = append(leaves, leave)
		}
	}
	for name, tokens := range map[string][]auth.Token{"without tokens": nil, "with one owner": one} {
		s := newCallSlots(tokens)
		if leaves, refusal := fill(s, "a"); len(leaves) != maxCalls || !strings.Contains(refusal, "80 calls are already running") {
			t.Errorf("%s: %d calls, then %q", name, len(leaves), refusal)
		}
	}
	s := newCallSlots(several)
	first, refusal := fill(s, "a")
	if len(first) != maxCalls/2 || !strings.Contains(refusal, "40 of your calls are already running") {
		t.Errorf("one owner has %d calls, then %q", len(first), refusal)
	}
	second, _ := fill(s, "b")
	if len(second) != maxCalls/2-1 {
		t.Errorf("the second owner has %d calls", len(second))
	}
	third, _ := fill(s, "c")
	if len(third) != 1 {
		t.Errorf("the third owner has %d calls", len(third))
	}
	if _, refusal := s.take("d"); !strings.Contains(refusal, "80 calls") {
		t.Errorf("with all slots in use: %q", refusal)
	}
	third[0]()
	third[0]() // twice is once
	if leave, _ := s.take("a"); leave != nil {
		t.Error("an owner at its bound takes the last slot")
	}
	if leave, _ := s.take("d"); leave == nil {
		t.Error("the slot that was given back is not free")
	}
}
