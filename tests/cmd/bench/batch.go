package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

const (
	rateBatch = "batch, cases per second"
	rateCalls = "sync calls in place of a batch, per second"
)

// batchCases is the number of cases of a batch: 1,000 in 200 rounds, less in a shorter run.
func (b *bench) batchCases() int { return max(100, min(1000, 5*b.rounds)) }

// batch compares a batch of short cases with as many calls, by one client, after a mixed batch has shown that the verdicts are right.
func batch(b *bench) error {
	client, err := pyexec.NewClient(b.server.URL)
	if err != nil {
		return err
	}
	if err := mixedBatch(client); err != nil {
		return fmt.Errorf("a mixed batch: %w", err)
	}
	// The program reads a number and prints its double, so that each case has an answer of its own.
	const code = `print(2 * int(input()))`
	count := b.batchCases()
	cases := make([]pyexec.Case, count)
	for i := range cases {
		in, want := fmt.Sprintf("%d\n", i), fmt.Sprintf("%d\n", 2*i)
		cases[i] = pyexec.Case{Stdin: &in, Expect: &pyexec.Expect{Stdout: &want}}
	}
	whole := func() (float64, error) {
		begin := time.Now()
		sum, err := client.RunBatch(context.Background(), pyexec.Batch{Spec: pyexec.Spec{Code: code}, Cases: cases, Parallel: connections}, pyexec.Input{}, func(pyexec.CaseResult) error { return nil })
		if err == nil && sum.Passed != int64(count) {
			err = fmt.Errorf("%+v", sum)
		}
		return float64(count) / time.Since(begin).Seconds(), err
	}
	single := func() (float64, error) {
		var next atomic.Int64
		begin := time.Now()
		_, err := perSecond(connections, time.Hour, func() error {
			i := next.Add(1) - 1
			if i >= int64(count) {
				return errDone
			}
			var v struct{ Status, Stdout string }
			if err := b.server.JSON(http.MethodPost, "/api/v1/exec/sync", fmt.Sprintf(`{"code":%q,"stdin":"%d\n"}`, code, i), &v); err != nil {
				return err
			}
			if v.Stdout != fmt.Sprintf("%d\n", 2*i) {
				return fmt.Errorf("%d: %+v", i, v)
			}
			return nil
		})
		if errors.Is(err, errDone) {
			err = nil
		}
		return float64(count) / time.Since(begin).Seconds(), err
	}
	return b.alternate(max(1, b.turns()-1), load{rateBatch, whole}, load{rateCalls, single})
}

var errDone = errors.New("all calls were made")

// mixedBatch has programs that pass, print something else, fail, crash, hang, flood and take too much memory.
func mixedBatch(client *pyexec.Client) error {
	const code = `
import os, sys, time
case = sys.argv[1]
if case == "fail": sys.exit(3)
if case == "crash": os.abort()
if case == "slow": time.sleep(60)
if case == "memory": x = bytearray(1 << 30)
if case == "flood":
    while True: os.write(1, b"x" * 65536)
print("right" if case == "pass" else "wrong")
`
	right := "right\n"
	verdicts := map[string]string{
		"pass": pyexec.VerdictPassed, "wrong": pyexec.VerdictWrongOutput, "fail": pyexec.VerdictFailed, "crash": pyexec.VerdictFailed,
		"slow": pyexec.VerdictTimedOut, "memory": pyexec.VerdictOutOfMemory, "flood": pyexec.VerdictTimedOut,
	}
	got := map[string]string{}
	timeout := 3.0
	batch := pyexec.Batch{Spec: pyexec.Spec{Code: code, Config: pyexec.Config{TimeoutSeconds: &timeout, MemoryMB: 256}}, Parallel: connections}
	for name := range verdicts {
		batch.Cases = append(batch.Cases, pyexec.Case{ID: name, Args: []string{name}, Expect: &pyexec.Expect{Stdout: &right}})
	}
	_, err := client.RunBatch(context.Background(), batch, pyexec.Input{}, func(r pyexec.CaseResult) error {
		got[r.ID] = r.Verdict
		return nil
	})
	if err == nil && !maps.Equal(got, verdicts) {
		err = fmt.Errorf("the verdicts are %s, want %s", strings.TrimPrefix(fmt.Sprint(got), "map"), strings.TrimPrefix(fmt.Sprint(verdicts), "map"))
	}
	return err
}
