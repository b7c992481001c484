// Package imagename has the names of container images, and the lists of those that may be used. The backends that run containers share it.
package imagename

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/distribution/reference"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/fetchproxy"
	"github.com/python-executor/python-executor/core/requirements"
)

// PreparedRepository holds the images that preparations made. Requests may not name them, because they may belong to other
// users.
const PreparedRepository = "python-executor/prepared"

// Ref is the normalised name of an image.
type Ref struct {
	// Repository includes the registry, "docker.io/library/python". At least one of Tag and Digest is set.
	Repository, Tag, Digest string
}

// ParseRef parses the name of an image. Codes: invalid (not a name, field docker_image).
func ParseRef(name string) (Ref, error) {
	named, err := reference.ParseNormalizedNamed(strings.TrimSpace(name))
	if err != nil {
		return Ref{}, executor.FieldErrorf(executor.Invalid, "docker_image", "must be the name of an image (got %q): %s", requirements.Shorten(name, 200), err)
	}
	named = reference.TagNameOnly(named)
	r := Ref{Repository: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		r.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		r.Digest = digested.Digest().String()
	}
	return r, nil
}

// String returns the full name. The daemon could take a short name for the beginning of an image's id.
func (r Ref) String() string {
	s := r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// familiar returns the name as users write it: "python:3.12".
func (r Ref) Familiar() string {
	return strings.TrimPrefix(strings.TrimPrefix(r.String(), "docker.io/"), "library/")
}

// registry returns the host that the image comes from, "docker.io".
func (r Ref) Registry() string {
	host, _, _ := strings.Cut(r.Repository, "/")
	return host
}

// Pattern is one entry of a list of images. * stands for any characters but a slash, ** for any characters, ? for one. A
// pattern without a tag matches every tag and digest. A pattern with a tag matches only requests for that tag without a digest:
// a tag beside a digest says nothing about the image. A pattern may name a digest.
//
// A pattern that names no registry, because wildcards stand in its place, matches public registries only: requests would otherwise choose
// what the daemon connects to.
type Pattern struct {
	repository, tag, digest *regexp.Regexp
	// anyRegistry reports whether only wildcards stand in the place of the registry.
	anyRegistry bool
}

// ParsePattern parses an entry of a list of images; "*" means every image.
func ParsePattern(text string) (Pattern, error) {
	text = strings.TrimSpace(text)
	if text == "*" || text == "**" {
		text = "**/**"
	}
	if text == "" || strings.ContainsAny(text, " \t\n[]\\{}") {
		return Pattern{}, fmt.Errorf("must be the name of an image, in which *, ** and ? stand for characters (got %q)", text)
	}
	name, digest, hasDigest := strings.Cut(text, "@")
	repository, tag, hasTag := name, "", false
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		repository, tag, hasTag = name[:i], name[i+1:], true
	}
	if repository == "" || hasTag && tag == "" || hasDigest && digest == "" {
		return Pattern{}, fmt.Errorf("must be the name of an image, in which *, ** and ? stand for characters (got %q)", text)
	}
	first, rest, slash := strings.Cut(repository, "/")
	switch {
	case !slash && repository != "**":
		repository = "docker.io/library/" + repository
	case slash && !strings.ContainsAny(first, ".:*?") && first != "localhost":
		repository = "docker.io/" + repository
	case slash && (first == "index.docker.io" || first == "docker.io"):
		if !strings.Contains(rest, "/") && !strings.Contains(rest, "**") {
			rest = "library/" + rest
		}
		repository = "docker.io/" + rest
	}
	registry, _, _ := strings.Cut(repository, "/")
	p := Pattern{repository: glob(repository), anyRegistry: strings.Trim(registry, "*?") == ""}
	if hasTag {
		p.tag = glob(tag)
	}
	if hasDigest {
		p.digest = glob(digest)
	}
	return p, nil
}

// glob compiles a pattern.
func glob(text string) *regexp.Regexp {
	quoted := regexp.QuoteMeta(text)
	quoted = strings.ReplaceAll(quoted, `\*\*`, `.*`)
	quoted = strings.ReplaceAll(quoted, `\*`, `[^/]*`)
	quoted = strings.ReplaceAll(quoted, `\?`, `[^/]`)
	return regexp.MustCompile(`^` + quoted + `$`) // it compiles, because everything else is quoted
}

func (p Pattern) matches(r Ref) bool {
	if !p.repository.MatchString(r.Repository) || p.anyRegistry && (fetchproxy.Policy{}).CheckURL("https://"+r.Registry()) != nil {
		return false
	}
	switch {
	case p.digest != nil:
		return r.Digest != "" && p.digest.MatchString(r.Digest)
	case p.tag != nil:
		return r.Digest == "" && p.tag.MatchString(r.Tag)
	}
	return true
}

// List is a list of patterns in the configuration.
type List []Pattern

// NewList parses the list at the path setting. Codes: invalid (an entry is not a pattern).
func NewList(entries []string, setting string) (List, error) {
	var list List
	for n, text := range entries {
		p, err := ParsePattern(text)
		if err != nil {
			return nil, executor.FieldErrorf(executor.Invalid, fmt.Sprintf("%s[%d]", setting, n), "%s", err)
		}
		list = append(list, p)
	}
	return list, nil
}

// Has reports whether a pattern of the list matches r.
func (l List) Has(r Ref) bool {
	return slices.ContainsFunc(l, func(p Pattern) bool { return p.matches(r) })
}

// Names reports whether a pattern of the list matches r and names its registry.
func (l List) Names(r Ref) bool {
	return slices.ContainsFunc(l, func(p Pattern) bool { return !p.anyRegistry && p.matches(r) })
}

// AllowList holds which images may be used.
type AllowList struct {
	patterns List
	// always is the default image, which may always be used.
	always Ref
	// setting is the path of the list in the configuration, for messages.
	setting string
}

// NewAllowList parses the list of allowed images.
func NewAllowList(patterns []string, defaultImage, setting string) (AllowList, error) {
	list, err := NewList(patterns, setting)
	if err != nil {
		return AllowList{}, err
	}
	always, err := ParseRef(defaultImage)
	return AllowList{patterns: list, always: always, setting: setting}, err
}

// Check returns the reference of an image that may be used. Codes, with the field docker_image: invalid (not a name), denied
// (not on the list).
func (a AllowList) Check(name string) (Ref, error) {
	r, err := ParseRef(name)
	if err != nil || r == a.always {
		return r, err
	}
	if strings.HasPrefix(r.Repository, "docker.io/"+PreparedRepository) {
		return Ref{}, executor.FieldErrorf(executor.Denied, "docker_image", "must not be a prepared image (got %q)", r.Familiar())
	}
	if a.patterns.Has(r) {
		return r, nil
	}
	return Ref{}, executor.FieldErrorf(executor.Denied, "docker_image", "%s is not among the images that may be used here (%s; a registry without a public address must be named there)", r.Familiar(), a.setting)
}

// CheckRegistry looks up the registry of an image that Check has allowed. It refuses one that has no public address, unless the list names it.
// A registry that this host does not know is left to the daemon. Codes: denied (field docker_image).
func (a AllowList) CheckRegistry(ctx context.Context, r Ref) error {
	if r == a.always || a.patterns.Names(r) {
		return nil
	}
	if refused, ok := errors.AsType[*fetchproxy.Refusal]((fetchproxy.Policy{}).Check(ctx, r.Registry())); ok {
		return executor.FieldErrorf(executor.Denied, "docker_image", "the registry of %s must have a public address, or be named in %s (%s)", r.Familiar(), a.setting, refused.Host)
	}
	return nil
}

// pythonTag matches the tag of an official image and captures its minor version: 3.12 of 3.12.1-slim.
var pythonTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(3\.(?:0|[1-9][0-9]?))((?:[.-].*)?)$`) })

const officialPython = "docker.io/library/python"

// minorOf returns the minor Python version that an image's name promises; empty if none.
func (r Ref) minorOf() string {
	if m := pythonTag().FindStringSubmatch(r.Tag); m != nil && r.Repository == officialPython {
		return m[1]
	}
	return ""
}

// Choose returns the image of a request: the requested image, the default image, or the variant of the default image with
// the requested Python version. minor is that version; empty means any. Codes: invalid (image and minor contradict each other).
func Choose(image, minor, defaultImage string) (string, error) {
	name := image
	if name == "" {
		name = defaultImage
	}
	r, err := ParseRef(name)
	if err != nil {
		return "", err
	}
	has := r.minorOf()
	switch {
	case minor == "" || has == "" || has == minor:
		return name, nil
	case image != "":
		return "", executor.FieldErrorf(executor.Invalid, "docker_image", "must match python_version %s (got %q, which has Python %s)", minor, image, has)
	}
	// 3.12-slim → 3.11-slim; 3.12.1-slim → 3.11-slim.
	_, variant, found := strings.Cut(r.Tag, "-")
	r.Tag, r.Digest = minor, ""
	if found {
		r.Tag += "-" + variant
	}
	return r.Familiar(), nil
}
