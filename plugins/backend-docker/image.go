package dockerbackend

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// imageInfo describes an image that the daemon has.
type imageInfo struct {
	// ID is the image's id, from which containers are made.
	ID string
	// Digest is for the Result: the registry's digest, else the image's own id, "sha256:…".
	Digest string
	// Path is the PATH of programs, and Env the rest of the image's environment, "NAME=value".
	Path string
	Env  []string
	// Volumes are the folders that the image declares as volumes. Containers get a folder in memory in place of each.
	Volumes []string
	// Requirements is the resolved list of a prepared image, sorted.
	Requirements []string
	// Name is the requested name of the image; empty for a prepared image.
	Name string
	// Ahead reports whether an interpreter may start in a container that waits. Code of other images runs only in an Execution.
	Ahead bool
	// Trusted reports whether preparations of this image get the credentials of package indexes (Config.TrustedImages).
	Trusted bool
}

// images checks which images may be used, pulls them, and prepares images for pre_commands and requirements.
type images struct {
	imagesOptions
	allow    imagename.AllowList
	trusted  imagename.List
	settings prepareSettings

	pulls    *backend.Group[imageInfo]
	prepares *backend.Group[prepared]
	cache    *preparedCache

	mu sync.Mutex
	// seen holds recently returned images by requested name.
	seen map[string]seenImage
	// handed holds returned images by image id.
	handed map[string]imageInfo
	// defaultImage is the repository of the default image.
	defaultImage string
}

// imagesOptions are the dependencies of images.
type imagesOptions struct {
	daemon *daemon
	// place holds the settings that all containers share.
	place place
	// network returns the network of programs that may use one.
	network func(context.Context) (string, error)
	// under returns the properties of the kernel of a runtime.
	under func(runtime string) under
	// interpreter finds an image's Python.
	interpreter func(context.Context, imageInfo) (runner.Interpreter, error)
	host        hostSettings
	log         *slog.Logger
}

// seenImage is an image that the daemon had at a time.
type seenImage struct {
	info imageInfo
	at   time.Time
}

const (
	// seenTime is how long a seen image is assumed to be there. A caller that finds it missing calls forget.
	seenTime = 10 * time.Second
	// maxSeen bounds the remembered images.
	maxSeen = 1000
)

// newImages returns the images of the backend called name. Their pulls and preparations end with base at the latest. Codes:
// invalid.
func newImages(base context.Context, name string, c Config, o imagesOptions) (*images, error) {
	section := "backends." + name
	allow, err := imagename.NewAllowList(c.Images, c.DefaultImage, section+".images")
	if err != nil {
		return nil, err
	}
	ours, err := imagename.ParseRef(c.DefaultImage)
	if err != nil {
		return nil, err
	}
	trusted, err := imagename.NewList(c.TrustedImages, section+".trusted_images")
	if err != nil {
		return nil, err
	}
	settings, err := newPrepareSettings(c.Prepare, section+".prepare", o.host)
	if err != nil {
		return nil, err
	}
	settings.trust = section + ".trusted_images"
	o.place.Runtime = cmp.Or(c.Prepare.Runtime, c.Runtime)
	o.place.Under = o.under(o.place.Runtime)
	return &images{
		imagesOptions: o, allow: allow, trusted: trusted, settings: settings,
		pulls: backend.NewGroup[imageInfo](base), prepares: backend.NewGroup[prepared](base), cache: newPreparedCache(o.daemon, c.Prepare.CacheBytes, o.log),
		seen: map[string]seenImage{}, handed: map[string]imageInfo{}, defaultImage: ours.Repository,
	}, nil
}

// ensure returns an image that may be used, and pulls it if the daemon does not have it. progress is called on this goroutine,
// at most five times a second. Callers that want the same image share one pull, which continues while a caller waits. Codes
// with the field docker_image: invalid (no name, or no such image), denied (not on the list, or the registry refuses access),
// unavailable (the registry). Code without a field: unavailable (the daemon). When ctx ends, ensure returns its cause.
func (i *images) ensure(ctx context.Context, ref string, progress func(executor.Progress)) (imageInfo, error) {
	r, err := i.allow.Check(ref)
	if err != nil {
		return imageInfo{}, err
	}
	if info, ok := i.recent(r.String()); ok {
		return info, nil
	}
	facts, err := i.daemon.image(ctx, r.String())
	if err == nil {
		return i.hand(r, facts), nil
	}
	if executor.CodeOf(err) != executor.NotFound {
		return imageInfo{}, err
	}
	return i.pulls.Do(ctx, r.String(), progress, func(ctx context.Context, progress func(executor.Progress)) (imageInfo, error) {
		return i.fetch(ctx, r, progress)
	})
}

// fetch pulls an image.
func (i *images) fetch(ctx context.Context, r imagename.Ref, progress func(executor.Progress)) (imageInfo, error) {
	begun := time.Now()
	if err := i.allow.CheckRegistry(ctx, r); err != nil {
		return imageInfo{}, err
	}
	if err := i.pull(ctx, r, progress); err != nil {
		return imageInfo{}, err
	}
	i.log.Info("image pulled", "image", r.Familiar(), "seconds", time.Since(begun).Seconds())
	facts, err := i.daemon.image(ctx, r.String())
	if err != nil {
		return imageInfo{}, fmt.Errorf("inspect the pulled image: %w", err)
	}
	return i.hand(r, facts), nil
}

// recent returns an image that was seen within seenTime.
func (i *images) recent(name string) (imageInfo, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s, ok := i.seen[name]
	return s.info, ok && time.Since(s.at) < seenTime
}

// hand builds the imageInfo of an image that was requested as r, and remembers it.
func (i *images) hand(r imagename.Ref, facts imageFacts) imageInfo {
	path, env := splitPath(facts.Env)
	info := imageInfo{ID: facts.ID, Digest: digestOf(r, facts), Path: path, Env: env, Volumes: facts.Volumes, Name: r.Familiar(), Trusted: i.trusted.Has(r)}
	info.Ahead = info.Trusted || r.Repository == i.defaultImage
	i.remember(r.String(), info)
	return info
}

func (i *images) remember(name string, info imageInfo) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.seen) >= maxSeen {
		clear(i.seen)
	}
	i.seen[name] = seenImage{info, time.Now()}
	if len(i.handed) >= maxSeen {
		clear(i.handed)
	}
	i.handed[info.ID] = info
}

// returned returns an image that was returned before, or the zero value.
func (i *images) returned(id string) imageInfo {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.handed[id]
}

// forget drops the image with this id, so that the next request asks the daemon again.
func (i *images) forget(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, s := range i.seen {
		if s.info.ID == id {
			delete(i.seen, name)
		}
	}
}

// digestOf returns the digest of an image in the requested repository. An image may have come from several repositories.
func digestOf(r imagename.Ref, facts imageFacts) string {
	if r.Digest != "" {
		return r.Digest
	}
	for _, text := range facts.RepoDigests {
		if of, err := imagename.ParseRef(text); err == nil && of.Repository == r.Repository {
			return of.Digest
		}
	}
	return facts.ID
}

// imagePath is the PATH of an image that declares none.
const imagePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func splitPath(env []string) (path string, rest []string) {
	path = imagePath
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, "PATH="); ok {
			path = cmp.Or(value, imagePath)
		} else {
			rest = append(rest, pair)
		}
	}
	return path, rest
}
