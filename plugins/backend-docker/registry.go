package dockerbackend

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/types"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// credentialsFile is the folder of the docker command's settings (config.json); empty if there is none.
type credentialsFile string

// dockerHub is the key of docker.io in the docker command's settings.
const dockerHub = "https://index.docker.io/v1/"

// of returns the credentials for a registry, from the settings or from the credential helper that they name (credsStore,
// credHelpers). It reads them on each call, so that a new login takes effect.
func (f credentialsFile) of(registry string) (types.AuthConfig, error) {
	if f == "" {
		return types.AuthConfig{}, nil
	}
	settings, err := config.Load(string(f))
	if err != nil {
		return types.AuthConfig{}, fmt.Errorf("read the docker command's settings: %w", err)
	}
	if registry == "docker.io" {
		registry = dockerHub
	}
	found, err := settings.GetAuthConfig(registry)
	if err != nil {
		return types.AuthConfig{}, fmt.Errorf("ask the credential helper: %w", err)
	}
	if found.Username == "" && found.Password == "" && found.IdentityToken == "" && found.RegistryToken == "" {
		return types.AuthConfig{}, nil
	}
	return found, nil
}

// pull pulls an image from its registry.
func (i *images) pull(ctx context.Context, r imagename.Ref, progress func(executor.Progress)) error {
	login, err := i.host.docker.of(r.Registry())
	if err != nil {
		// Public images can be pulled without credentials.
		i.log.Warn("read registry credentials", "registry", r.Registry(), "error", err)
	}
	p := newPullProgress("pulling "+r.Familiar(), progress)
	err = i.daemon.pull(ctx, r.String(), login, p.line)
	if said, ok := errors.AsType[errPull](err); ok {
		return pullError(r, said.text, login != types.AuthConfig{})
	}
	return err
}

// pullProgress sums up the layers of a pull.
type pullProgress struct {
	message string
	tell    func(executor.Progress)
	layers  map[string]pullLine
}

func newPullProgress(message string, tell func(executor.Progress)) *pullProgress {
	p := &pullProgress{message: message, tell: tell, layers: map[string]pullLine{}}
	tell(executor.Progress{Phase: executor.PhasePrepare, Message: message})
	return p
}

func (p *pullProgress) line(l pullLine) {
	switch l.Status {
	case "Downloading":
		p.layers[l.Layer] = l
	case "Download complete", "Verifying Checksum", "Extracting", "Pull complete":
		if known, ok := p.layers[l.Layer]; ok {
			known.Done = known.Total
			p.layers[l.Layer] = known
		}
	default:
		return
	}
	e := executor.Progress{Phase: executor.PhasePrepare, Message: p.message, Unit: "bytes"}
	for _, layer := range p.layers {
		e.Done += layer.Done
		e.Total += max(layer.Total, layer.Done)
	}
	p.tell(e)
}

// The reason of a failed pull is only in the message of the daemon or the registry.
var (
	unauthorisedForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)unauthorized|authentication required|no basic auth credentials|incorrect username or password|denied: |access forbidden|pull access denied`)
	})
	absentForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)not found|manifest unknown|name unknown|repository does not exist|no matching manifest`)
	})
	busyForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)toomanyrequests|too many requests|rate limit`) })
	diskForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`) })
)

// pullError returns the error of a failed pull. It names the field docker_image, because the daemon itself works. loggedIn
// reports whether credentials were sent.
func pullError(r imagename.Ref, said string, loggedIn bool) error {
	said = requirements.Shorten(requirements.WithoutCredentials(said), 1000)
	const field = "docker_image"
	name := r.Familiar()
	switch {
	case diskForm().MatchString(said):
		return executor.FieldErrorf(executor.Unavailable, field, "no space for %s: %s", name, said)
	case busyForm().MatchString(said):
		return executor.FieldErrorf(executor.Unavailable, field, "the registry of %s is busy: %s", name, said)
	case unauthorisedForm().MatchString(said):
		hint := "it may not exist, or need credentials: docker login " + r.Registry() + " on the host of python-executor"
		if loggedIn {
			hint = "it may not exist, or the credentials may not give access to it"
		}
		return executor.FieldErrorf(executor.Denied, field, "%s could not be pulled: %s (%s)", name, hint, said)
	case absentForm().MatchString(said):
		return executor.FieldErrorf(executor.Invalid, field, "%s does not exist: %s", name, said)
	}
	return executor.FieldErrorf(executor.Unavailable, field, "%s could not be pulled: %s", name, said)
}
