package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

const (
	rateBatch = "batch, cases per second"
	rateCalls = "sync calls in place of a batch, per second"
	// A batch of a folder, which each call sends.
	rateBatchFiles = "batch of 1 MB of files, cases per second"
	rateCallsFiles = "sync calls of 1 MB of files, per second"
	rateBatchMany  = "batch of 10 MB in 1,000 files, cases per second"
	rateCallsMany  = "sync calls of 10 MB in 1,000 files, per second"
)

// batchCases is the number of cases of a batch: 1,000 in 200 rounds, less in a shorter run.
func (b *bench) batchCases() int { return max(100, min(1000, 5*b.rounds)) }

// doubles is a program that reads a number and prints its double, so that each case has an answer of its own.
const doubles = `print(2 * int(input()))`

// batch compares a batch of short cases with calls by one client, after a mixed batch has shown that the verdicts are right.
func batch(b *bench) error {
	client, err := pyexec.NewClient(b.server.URL)
	if err != nil {
		return err
	}
	if err := mixedBatch(client); err != nil {
		return fmt.Errorf("a mixed batch: %w", err)
	}
	calls := b.batchCases()
	loads := []load{
		{rateBatch, b.together(client, pyexec.Spec{Code: doubles}, noInput)},
		{rateCalls, b.singly(calls, func(i int) (string, error) {
			var v struct{ Stdout string }
			err := b.server.JSON(http.MethodPost, "/api/v1/exec/sync", fmt.Sprintf(`{"code":%q,"stdin":"%d\n"}`, doubles, i), &v)
			return v.Stdout, err
		})},
	}
	hundred, err := b.ofFolder(client, 100, rateBatchFiles, rateCallsFiles, calls)
	if err != nil {
		return err
	}
	// The rate of slow calls needs fewer of them.
	thousand, err := b.ofFolder(client, 1000, rateBatchMany, rateCallsMany, max(50, calls/5))
	if err != nil {
		return err
	}
	loads = slices.DeleteFunc(slices.Concat(loads, hundred, thousand), func(l load) bool { return !b.wants(l.series) })
	return b.alternate(max(1, b.turns()-1), loads...)
}

func noInput() pyexec.Input { return pyexec.Input{} }

// ofFolder returns the loads of a folder of so many files of 10 KB: a batch of it, and so many calls that each send it.
func (b *bench) ofFolder(client *pyexec.Client, files int, batch, calls string, count int) ([]load, error) {
	folder, err := folderOfFiles(files)
	if err != nil {
		return nil, err
	}
	input := func() pyexec.Input { return pyexec.Input{Tar: bytes.NewReader(folder)} }
	return []load{
		{batch, b.together(client, pyexec.Spec{Detect: new(false)}, input)},
		{calls, b.singly(count, func(i int) (string, error) {
			x, err := client.Run(context.Background(), pyexec.Spec{Stdin: fmt.Sprintln(i), Detect: new(false)}, input())
			if err != nil {
				return "", err
			}
			return x.Stdout, nil
		})},
	}, nil
}

// together returns the rate of a batch.
func (b *bench) together(client *pyexec.Client, spec pyexec.Spec, input func() pyexec.Input) func() (float64, error) {
	count := b.batchCases()
	cases := make([]pyexec.Case, count)
	for i := range cases {
		in, want := fmt.Sprintln(i), fmt.Sprintln(2*i)
		cases[i] = pyexec.Case{Stdin: &in, Expect: &pyexec.Expect{Stdout: &want}}
	}
	return func() (float64, error) {
		begin := time.Now()
		sum, err := client.RunBatch(context.Background(), pyexec.Batch{Spec: spec, Cases: cases, Parallel: connections}, input(), func(pyexec.CaseResult) error { return nil })
		if err == nil && sum.Passed != int64(count) {
			err = fmt.Errorf("%+v", sum)
		}
		return float64(count) / time.Since(begin).Seconds(), err
	}
}

// singly returns the rate of so many calls. call returns what the program prints for i.
func (b *bench) singly(count int, call func(i int) (string, error)) func() (float64, error) {
	return func() (float64, error) {
		var next atomic.Int64
		begin := time.Now()
		_, err := perSecond(connections, time.Hour, func() error {
			i := next.Add(1) - 1
			if i >= int64(count) {
				return errDone
			}
			got, err := call(int(i))
			if err == nil && got != fmt.Sprintln(2*i) {
				err = fmt.Errorf("%d: %q", i, got)
			}
			return err
		})
		if errors.Is(err, errDone) {
			err = nil
		}
		return float64(count) / time.Since(begin).Seconds(), err
	}
}

// folderOfFiles returns a tar of the program and of so many files of 10 KB.
func folderOfFiles(files int) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, data []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	err := add("main.py", []byte(doubles))
	for i := range files {
		err = errors.Join(err, add(fmt.Sprintf("data/%d.bin", i), make([]byte, 10<<10)))
	}
	return b.Bytes(), errors.Join(err, w.Close())
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
	batch := pyexec.Batch{Spec: pyexec.Spec{Code: code, Config: pyexec.Config{TimeoutSeconds: &timeout, MemoryMB: 64}}, Parallel: connections}
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
