package cmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/cli/internal/input"
	"github.com/python-executor/python-executor/cli/internal/remote"
	"github.com/python-executor/python-executor/core/batch"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/strictjson"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// maxCasesFile bounds the file of --each, as the server bounds the body of a batch. It also bounds a standard input that is kept in memory.
const maxCasesFile = 32 << 20

// readCases reads the cases of --each: a JSON array, or one object after another (NDJSON).
func readCases(r io.Reader) ([]pyexec.Case, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxCasesFile+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxCasesFile {
		return nil, fmt.Errorf("must have at most %d bytes", maxCasesFile)
	}
	raw = bytes.TrimPrefix(raw, []byte("\ufeff")) // editors of Windows write it
	if !utf8.Valid(raw) {
		return nil, errors.New("must be UTF-8")
	}
	items, err := itemsOf(raw)
	if err != nil {
		return nil, err
	}
	cases := make([]pyexec.Case, len(items))
	for i, item := range items {
		if err := decodeCase(item, &cases[i]); err != nil {
			return nil, fmt.Errorf("case %d: %w", i, err)
		}
	}
	return cases, nil
}

// itemsOf returns the values of an array, or values that follow each other.
func itemsOf(raw []byte) (items []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		if err := d.Decode(&items); err != nil {
			return nil, fmt.Errorf("must be JSON: an array of objects, or one object after another: %w", err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("must end after the array")
		}
		return items, nil
	}
	for {
		var item json.RawMessage
		err := d.Decode(&item)
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, fmt.Errorf("case %d: must be JSON: an array of objects, or one object after another: %w", len(items), err)
		}
		items = append(items, item)
	}
}

func decodeCase(raw json.RawMessage, into *pyexec.Case) error {
	switch {
	case string(raw) == "null":
		return errors.New("must be an object (got null)")
	case strictjson.HasHalfPair(raw):
		return errors.New("must not have half of a surrogate pair")
	}
	err := strictjson.Decode(raw, into)
	if strings.HasSuffix(fmt.Sprint(err), "unknown field") {
		return fmt.Errorf("%w (a case has id, args, env, stdin, expect, which has stdout, exit_code, compare, tolerance_abs, tolerance_rel)", err)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: must not be a %s", cmp.Or(kind.Field, "value"), kind.Value)
	}
	return err
}

// checkEach refuses the flags of a batch without --each, which would be ignored, and values that mean their default elsewhere.
func (o *runOptions) checkEach(f *pflag.FlagSet) error {
	if err := notEmpty(f, "each"); err != nil {
		return err
	}
	for _, name := range []string{"parallel", "stop-at-first-failure"} {
		if f.Changed(name) && o.each == "" {
			return fmt.Errorf("--%s: must be given together with --each", name)
		}
	}
	if f.Changed("parallel") && (o.parallel < 1 || o.parallel > batch.MaxParallel) {
		return fmt.Errorf("--parallel: must be between 1 and %d (got %d)", batch.MaxParallel, o.parallel)
	}
	return nil
}

// casesOf reads the file of --each.
func (o *runOptions) casesOf() ([]pyexec.Case, error) {
	switch {
	case o.stdin == "-" && o.each == "-":
		return nil, errors.New("--each: must not be -, because --stdin is")
	case o.output != "": // --artifact needs it
		return nil, errors.New("--each: must not be given with --output or --artifact")
	}
	from := o.g.In
	if o.each != "-" {
		file, err := os.Open(o.each)
		if err != nil {
			return nil, fmt.Errorf("--each: %w", err)
		}
		defer file.Close()
		from = file
	}
	if from == nil {
		return nil, errors.New("--each: there is no standard input")
	}
	cases, err := readCases(from)
	if err != nil {
		return nil, fmt.Errorf("--each: %w", err)
	}
	return cases, nil
}

// executeEach runs the program for all cases. Its error is exit status 1 if a case has not passed.
func (o *runOptions) executeEach(d *target, spec executor.Spec, in *input.Input, stdin *executor.Source) error {
	asked := pyexec.Batch{Spec: apijson.SpecOf(spec), Cases: o.cases, Parallel: o.parallel, StopAtFirstFailure: o.stopAtFirst}
	b := apijson.ToBatch(asked, textSource)
	b.Spec, b.Workspace, b.Stdin = spec, in.Workspace, stdin
	var bad executor.Problems
	if b.Check(&bad); bad.Err(executor.Invalid, "", "; ") != nil {
		return bad.Err(executor.Invalid, "", "; ")
	}
	var summary pyexec.BatchSummary
	var err error
	o.table = newEachTable(o.g.Out, o.cases)
	if svc, ok := d.Service.(*remote.Service); ok {
		summary, err = svc.RunBatch(d.ctx, asked, executor.Input{Workspace: in.Workspace, Stdin: stdin}, o.printCase)
	} else {
		if b.Stdin, err = rereadable(d.ctx, stdin); err != nil {
			return fmt.Errorf("--stdin: %w", err)
		}
		var done batch.Summary
		done, err = batch.Run(d.ctx, d, b, func() {}, func(i int) batch.Watcher { return &eachWatcher{o: o, of: b.Cases[i]} })
		summary = apijson.BatchSummaryOf(done)
	}
	if err != nil {
		return err
	}
	if o.g.json {
		err = json.NewEncoder(o.g.Out).Encode(map[string]any{"summary": summary})
	} else {
		err = o.table.total(summary)
		if n := o.table.waited; n > 0 && !o.g.given("cpu-seconds") {
			o.g.note("%d of the cases that timed out waited for most of their time. Cases share the processors: --cpu-seconds bounds what a case uses itself", n)
		}
	}
	if err == nil && summary.Passed < summary.Cases {
		err = &exit.Error{Status: exit.Negative}
	}
	return err
}

// rereadable returns s, or a copy of it in memory if s can be opened only once: every case opens it. The end of ctx ends the copying.
func rereadable(ctx context.Context, s *executor.Source) (*executor.Source, error) {
	if s == nil || s.Replayable {
		return s, nil
	}
	r, err := s.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer context.AfterFunc(ctx, func() { r.Close() })()
	raw, err := io.ReadAll(io.LimitReader(r, maxCasesFile+1))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case len(raw) > maxCasesFile:
		return nil, fmt.Errorf("must have at most %d bytes with --each, unless it is a regular file or the program runs on a server", maxCasesFile)
	}
	return textSource(string(raw)), nil
}

func textSource(text string) *executor.Source {
	return &executor.Source{SizeBytes: int64(len(text)), Replayable: true, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	}}
}

// printCase prints the end of a case: a line of a table, or of NDJSON with --json.
func (o *runOptions) printCase(c pyexec.CaseResult) error {
	if o.g.json {
		return json.NewEncoder(o.g.Out).Encode(c)
	}
	return o.table.add(c)
}

// eachWatcher collects what one case of an embedded batch prints. Only --json shows it.
type eachWatcher struct {
	o              *runOptions
	of             batch.Case
	stdout, stderr []byte
	displays       []executor.Display
}

// Event implements batch.Watcher.
func (w *eachWatcher) Event(e executor.Event) {
	if !w.o.g.json {
		return
	}
	switch b := e.Body.(type) {
	case executor.Output:
		if b.Stream == executor.Stderr {
			w.stderr = append(w.stderr, b.Data...)
		} else {
			w.stdout = append(w.stdout, b.Data...)
		}
	case executor.Display:
		w.displays = append(w.displays, b)
	}
}

// Ended implements batch.Watcher.
func (w *eachWatcher) Ended(out batch.Outcome) error {
	c := apijson.CaseOf(out, w.of)
	if out.Execution != nil && out.Execution.Status.Terminal() {
		c.Result = new(apijson.ResultOf(*out.Execution, w.stdout, w.stderr, w.displays))
	}
	return w.o.printCase(c)
}
