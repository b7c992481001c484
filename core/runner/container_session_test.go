//go:build linux

package runner

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/agent"
)

func TestASessionLivesInAContainerAndOutlivesItsHost(t *testing.T) {
	r := startInside(t)
	start := pythonSession()
	if err := r.OpenSession(t.Context(), start); err != nil {
		t.Fatalf("%v\n%s", err, r.stderr)
	}
	cell := func(conn *Conn, id, code string) (executor.Result, *record) {
		t.Helper()
		rec := newRecord()
		s := Start{ExecutionID: id, Session: true, Code: code, Limits: limits()}
		res, err := conn.Run(t.Context(), s, RunInput{}, rec)
		if err != nil {
			t.Fatalf("%s: %v\n%s", id, err, r.stderr)
		}
		return res, rec
	}
	cell(r.Conn, "exe_1", "import time\nkept = 41")
	command := Start{ExecutionID: "exe_2", Session: true, Command: []string{"/bin/sh", "-c", "(trap '' TERM; sleep 1000000) & echo beside"}, Path: "/usr/bin:/bin", Limits: limits()}
	if res, rec := r.run(t, command, RunInput{}); describe(res) != "succeeded exit 0" || rec.stdout() != "beside\n" {
		t.Errorf("a command: %s %q %q", describe(res), rec.stdout(), rec.stderr())
	}

	// The host goes away while a cell runs, and what the cell has printed since is there for the next host.
	const goesOn = `
import os
for i in range(20):
    print(i, flush=True)
    while i == 9 and not os.path.exists("go"): time.sleep(0.01)
kept + 1`
	board := r.Conn.rw.(*client).board
	rec := newRecord()
	gone := make(chan error, 1)
	go func() {
		_, err := r.Run(t.Context(), Start{ExecutionID: "exe_3", Session: true, Code: goesOn, Limits: limits()}, RunInput{}, rec)
		gone <- err
	}()
	<-rec.started
	if err := r.Detach(); err != nil {
		t.Error(err)
	}
	if err := <-gone; executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the host that went away: %v", err)
	}
	held, err := ResumeConn(board.attach(-1, -1), ResumeOptions{Epoch: r.Epoch()})
	if err != nil {
		t.Fatal(err)
	}
	if held.reply.ExecutionID != "exe_3" {
		t.Errorf("the session is at %q", held.reply.ExecutionID)
	}
	if _, err := held.WriteFile(t.Context(), executor.File{Path: "go", SizeBytes: 0}, strings.NewReader("")); err != nil {
		t.Error(err)
	}
	if err := held.Detach(); err != nil {
		t.Error(err)
	}
	again, err := ResumeConn(board.attach(-1, -1), ResumeOptions{Epoch: r.Epoch(), ExecutionID: "exe_3", Stdout: int64(rec.out[0].Len())})
	if err != nil {
		t.Fatal(err)
	}
	res, err := again.Follow(t.Context(), rec)
	want := ""
	for _, n := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19"} {
		want += n + "\n"
	}
	if err != nil || describe(res) != "succeeded exit 0" || rec.stdout() != want || rec.badOffset {
		t.Errorf("%v %s %q", err, describe(res), rec.stdout())
	}
	displays := 0
	for _, k := range rec.kinds {
		if k == executor.KindDisplay {
			displays++
		}
	}
	if displays != 1 {
		t.Errorf("%d values of the last expression", displays)
	}
	if _, rec := cell(again, "exe_4", "print(kept)"); rec.stdout() != "41\n" {
		t.Errorf("the state is gone: %q %q", rec.stdout(), rec.stderr())
	}
	slow, rec := cellOf("print('up', flush=True)\nwhile True: pass"), newRecord()
	rec.tells(t, &slow, said{"up", agent.LimitTimeout})
	if res, err := again.Run(t.Context(), slow, RunInput{}, rec); err != nil || res.Status != executor.StatusTimedOut {
		t.Errorf("%v %s", err, describe(res))
	}
	if _, rec := cell(again, "exe_6", "print(kept)"); rec.stdout() != "41\n" {
		t.Errorf("the state is gone after an interrupt: %q %q", rec.stdout(), rec.stderr())
	}
	if err := again.CloseSession(t.Context()); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
