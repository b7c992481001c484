package dockerbackend

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// claims records which Execution or Session has which container. Labels cannot record that: they are fixed when a container is
// made, before its use is known. The reaper reads the claims. If there is a folder, they also serve the next life after a
// crash, as one file per Execution or Session. It is safe for concurrent use.
type claims struct {
	dir  string // empty: claims end with the process
	boot string

	mu   sync.Mutex
	here map[string]claim // the claims of this process, by Execution or Session
}

// claim is the record of one container.
type claim struct {
	Container string    `json:"container"`
	Boot      string    `json:"boot"` // the life that claimed it
	Deadline  time.Time `json:"deadline"`
}

func (c *claims) path(id string) string { return filepath.Join(c.dir, filepath.Base(id)+".json") }

// add records that id has a container. If add fails, only this process knows of it.
func (c *claims) add(id, container string, deadline time.Time) error {
	one := claim{container, c.boot, deadline}
	c.mu.Lock()
	if c.here == nil {
		c.here = map[string]claim{}
	}
	c.here[id] = one
	c.mu.Unlock()
	if c.dir == "" {
		return nil
	}
	raw, err := json.Marshal(one)
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

func (c *claims) find(id string) (claim, bool) {
	c.mu.Lock()
	one, ok := c.here[id]
	c.mu.Unlock()
	if ok || c.dir == "" {
		return one, ok
	}
	return c.read(c.path(id))
}

func (c *claims) read(path string) (claim, bool) {
	raw, err := os.ReadFile(path)
	var found claim
	if err != nil || json.Unmarshal(raw, &found) != nil {
		return claim{}, false
	}
	return found, found.Container != ""
}

func (c *claims) drop(id string) {
	c.mu.Lock()
	delete(c.here, id)
	c.mu.Unlock()
	if c.dir != "" {
		_ = os.Remove(c.path(id)) // the reaper drops a file that stays
	}
}

// all returns all claims by Execution or Session.
func (c *claims) all() map[string]claim {
	found := map[string]claim{}
	if c.dir != "" {
		files, _ := filepath.Glob(filepath.Join(c.dir, "*.json")) // only a malformed pattern fails
		for _, f := range files {
			found[strings.TrimSuffix(filepath.Base(f), ".json")], _ = c.read(f)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(found, c.here)
	return found
}
