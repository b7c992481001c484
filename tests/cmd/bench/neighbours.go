package main

import (
	"fmt"
	"time"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

// nuisances are programs that do their worst.
var nuisances = []struct{ name, code string }{
	{"a fork bomb", `import os\nwhile True:\n  try: os.fork()\n  except OSError: pass`},
	{"a memory bomb", `import os, time\nwhile True:\n  if os.fork() == 0: x = bytearray(1 << 33)\n  time.sleep(0.05)`},
	{"an output flood", `import os\nwhile True: os.write(1, b'x' * 65536)`},
	{"a full work disk", `while True:\n  try:\n    with open('f', 'wb') as f:\n      while True: f.write(bytes(1 << 20))\n  except OSError: pass`},
}

// calmSync is a call before somebody else's program does its worst.
const calmSync = "http sync beside nothing"

func neighbourSeries() []string {
	series := []string{calmSync}
	for _, n := range nuisances {
		series = append(series, httpSync+" beside "+n.name)
	}
	return series
}

// neighbours measures calls to the uv backend beside each nuisance, and as many before it.
func neighbours(b *bench) error {
	calls := max(10, min(40, b.rounds))
	for _, n := range nuisances {
		beside := httpSync + " beside " + n.name
		if !b.wants(beside) {
			continue
		}
		if err := b.calls(b.server, calmSync, calls); err != nil {
			return err
		}
		if err := b.beside(b.server, n.code, beside, calls); err != nil {
			return err
		}
	}
	return nil
}

// beside measures calls while a program runs, which it ends.
func (b *bench) beside(s *serve.Server, code, series string, calls int) error {
	var v struct {
		ID string `json:"execution_id"`
	}
	if err := s.JSON("POST", "/api/v1/exec/async", `{"code":"`+code+`","config":{"timeout_seconds":120,"memory_mb":128,"disk_mb":128}}`, &v); err != nil {
		return err
	}
	for {
		var e struct{ Status string }
		if err := s.JSON("GET", "/api/v1/executions/"+v.ID, "", &e); err != nil {
			return err
		}
		if e.Status == "running" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := b.calls(s, series, calls); err != nil {
		return err
	}
	return s.JSON("DELETE", "/api/v1/executions/"+v.ID, "", &struct{}{})
}

func (b *bench) calls(s *serve.Server, series string, calls int) error {
	call := timed(func() error { return sync(s, httpHello) })
	for range calls {
		took, err := call()
		if err != nil {
			return fmt.Errorf("%s: %w", series, err)
		}
		b.run.add(series, took)
	}
	return nil
}
