package dockerbackend

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// claims says on disk which container runs which Execution: labels cannot be changed once a container is made, and a warm
// one was made before. It is for the life after a crash: a file per Execution that runs. The zero value keeps nothing.
type claims struct{ dir, boot string }

// claim is one such file.
type claim struct {
	Container string    `json:"container"`
	Boot      string    `json:"boot"` // who has it
	Deadline  time.Time `json:"deadline"`
}

func (c claims) path(id string) string { return filepath.Join(c.dir, filepath.Base(id)+".json") }

func (c claims) add(id, container string, deadline time.Time) error {
	if c.dir == "" {
		return nil
	}
	raw, err := json.Marshal(claim{container, c.boot, deadline})
	if err != nil {
		return err
	}
	err = os.WriteFile(c.path(id), raw, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(c.dir, 0o700); err == nil {
			err = os.WriteFile(c.path(id), raw, 0o600)
		}
	}
	return err
}

func (c claims) find(id string) (claim, bool) {
	if c.dir == "" {
		return claim{}, false
	}
	raw, err := os.ReadFile(c.path(id))
	var found claim
	if err != nil || json.Unmarshal(raw, &found) != nil {
		return claim{}, false
	}
	return found, found.Container != ""
}

func (c claims) drop(id string) {
	if c.dir != "" {
		_ = os.Remove(c.path(id)) // what stays is dropped by the reaper
	}
}

// all returns what is claimed, by Execution.
func (c claims) all() map[string]claim {
	found := map[string]claim{}
	if c.dir == "" {
		return found
	}
	files, _ := filepath.Glob(filepath.Join(c.dir, "*.json")) // the pattern is well-formed
	for _, f := range files {
		id := filepath.Base(f)
		id = id[:len(id)-len(".json")]
		found[id], _ = c.find(id)
	}
	return found
}
