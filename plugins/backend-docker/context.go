package dockerbackend

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/python-executor/python-executor/core/executor"
)

// endpoint is where a context of the docker command leads. The zero value means the default socket.
type endpoint struct {
	host, ca, cert, key string
}

// currentContext reads the context that the docker command would use, from its folder. name is DOCKER_CONTEXT; empty: the
// current one. Codes: invalid (a context that is named and is not there).
func currentContext(folder, name string) (endpoint, error) {
	if folder == "" {
		return endpoint{}, nil
	}
	if name == "" {
		var settings struct {
			CurrentContext string `json:"currentContext"`
		}
		raw, err := os.ReadFile(filepath.Join(folder, "config.json")) //nolint:gosec // the user's own settings
		if err != nil || json.Unmarshal(raw, &settings) != nil {
			return endpoint{}, nil //nolint:nilerr // without settings there is no context
		}
		name = settings.CurrentContext
	}
	if name == "" || name == "default" {
		return endpoint{}, nil
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	raw, err := os.ReadFile(filepath.Join(folder, "contexts", "meta", id, "meta.json")) //nolint:gosec // the user's own settings
	if errors.Is(err, os.ErrNotExist) {
		return endpoint{}, executor.Errorf(executor.Invalid, "the docker context %q does not exist", name)
	}
	var meta struct {
		Endpoints struct {
			Docker struct {
				Host string `json:"Host"`
			} `json:"docker"`
		} `json:"Endpoints"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &meta)
	}
	if err != nil {
		return endpoint{}, executor.Errorf(executor.Invalid, "the docker context %q: %w", name, err)
	}
	c := endpoint{host: meta.Endpoints.Docker.Host}
	file := func(base string) string {
		path := filepath.Join(folder, "contexts", "tls", id, "docker", base)
		if _, err := os.Stat(path); err != nil { //nolint:gosec // the user's own settings
			return ""
		}
		return path
	}
	c.ca, c.cert, c.key = file("ca.pem"), file("cert.pem"), file("key.pem")
	return c, nil
}
