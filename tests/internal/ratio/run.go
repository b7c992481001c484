package ratio

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// Run is what is kept of a run of the benchmark. Each series is in the order in which it was measured.
type Run struct {
	Date     time.Time         `json:"date"`
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	// Repetitions is how often everything was started anew; 0 and 1: once. Each repetition has an equal part of each series.
	Repetitions int `json:"repetitions,omitempty"`
	// Samples are durations in milliseconds, by series.
	Samples map[string][]float64 `json:"samples_ms"`
	// Rates are counts per second, one for each turn of a series.
	Rates map[string][]float64 `json:"rates_per_second,omitempty"`
	// Figures are single values.
	Figures map[string]float64 `json:"figures"`
}

// NewRun returns a Run without samples.
func NewRun(date time.Time) Run {
	return Run{
		Date: date, Machine: map[string]string{}, Versions: map[string]string{},
		Samples: map[string][]float64{}, Rates: map[string][]float64{}, Figures: map[string]float64{},
	}
}

// series returns the values of a series, nil if there are none.
func (r *Run) series(name string) []float64 {
	if list := r.Samples[name]; len(list) > 0 {
		return list
	}
	if list := r.Rates[name]; len(list) > 0 {
		return list
	}
	if v, ok := r.Figures[name]; ok {
		return []float64{v}
	}
	return nil
}

// File is a Run that was committed.
type File struct {
	// Name is the path below the root of the repository.
	Name string
	Run
}

// Committed returns the runs below the folder bench of HEAD, the newest first. root is a folder of the repository's work tree. A file that
// is not committed does not count, nor does what a committed file has become since.
func Committed(ctx context.Context, root string) ([]File, error) {
	list, err := git(ctx, root, "ls-tree", "-r", "--name-only", "HEAD", "--", "bench")
	if err != nil {
		return nil, err
	}
	var files []File
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		if path.Ext(name) != ".json" {
			continue
		}
		raw, err := git(ctx, root, "show", "HEAD:./"+name)
		if err != nil {
			return nil, err
		}
		f := File{Name: name}
		if err := json.Unmarshal(raw, &f.Run); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, f)
	}
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Or(b.Date.Compare(a.Date), cmp.Compare(b.Name, a.Name)) })
	return files, nil
}

func git(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, stderr.String())
	}
	return out, nil
}
