package dockerbackend

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// preparedRepository holds the images that preparations made. Requests may not name them, because they may belong to other
// users.
const preparedRepository = "python-executor/prepared"

// imageRef is the normalised name of an image.
type imageRef struct {
	// repository includes the registry, "docker.io/library/python". At least one of tag and digest is set.
	repository, tag, digest string
}

// parseRef parses the name of an image. Codes: invalid (not a name, field docker_image).
func parseRef(name string) (imageRef, error) {
	named, err := reference.ParseNormalizedNamed(strings.TrimSpace(name))
	if err != nil {
		return imageRef{}, executor.FieldErrorf(executor.Invalid, "docker_image", "must be the name of an image (got %q): %s", requirements.Shorten(name, 200), err)
	}
	named = reference.TagNameOnly(named)
	r := imageRef{repository: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		r.tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		r.digest = digested.Digest().String()
	}
	return r, nil
}

// String returns the full name. The daemon could take a short name for the beginning of an image's id.
func (r imageRef) String() string {
	s := r.repository
	if r.tag != "" {
		s += ":" + r.tag
	}
	if r.digest != "" {
		s += "@" + r.digest
	}
	return s
}

// familiar returns the name as users write it: "python:3.12".
func (r imageRef) familiar() string {
	return strings.TrimPrefix(strings.TrimPrefix(r.String(), "docker.io/"), "library/")
}

// registry returns the host that the image comes from, "docker.io".
func (r imageRef) registry() string {
	host, _, _ := strings.Cut(r.repository, "/")
	return host
}

// imagePattern is one entry of a list of images. * stands for any characters but a slash, ** for any characters, ? for one. A
// pattern without a tag matches every tag and digest. A pattern with a tag matches only requests for that tag without a digest:
// a tag beside a digest says nothing about the image. A pattern may name a digest.
type imagePattern struct {
	repository, tag, digest *regexp.Regexp
}

// parsePattern parses an entry of a list of images; "*" means every image.
func parsePattern(text string) (imagePattern, error) {
	text = strings.TrimSpace(text)
	if text == "*" || text == "**" {
		text = "**/**"
	}
	if text == "" || strings.ContainsAny(text, " \t\n[]\\{}") {
		return imagePattern{}, fmt.Errorf("must be the name of an image, in which *, ** and ? stand for characters (got %q)", text)
	}
	name, digest, hasDigest := strings.Cut(text, "@")
	repository, tag, hasTag := name, "", false
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		repository, tag, hasTag = name[:i], name[i+1:], true
	}
	if repository == "" || hasTag && tag == "" || hasDigest && digest == "" {
		return imagePattern{}, fmt.Errorf("must be the name of an image, in which *, ** and ? stand for characters (got %q)", text)
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
	p := imagePattern{repository: glob(repository)}
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

func (p imagePattern) matches(r imageRef) bool {
	if !p.repository.MatchString(r.repository) {
		return false
	}
	switch {
	case p.digest != nil:
		return r.digest != "" && p.digest.MatchString(r.digest)
	case p.tag != nil:
		return r.digest == "" && p.tag.MatchString(r.tag)
	}
	return true
}

// imageList is a list of patterns in the configuration.
type imageList []imagePattern

// newImageList parses the list at the path setting. Codes: invalid (an entry is not a pattern).
func newImageList(entries []string, setting string) (imageList, error) {
	var list imageList
	for n, text := range entries {
		p, err := parsePattern(text)
		if err != nil {
			return nil, executor.FieldErrorf(executor.Invalid, fmt.Sprintf("%s[%d]", setting, n), "%s", err)
		}
		list = append(list, p)
	}
	return list, nil
}

// has reports whether a pattern of the list matches r.
func (l imageList) has(r imageRef) bool {
	return slices.ContainsFunc(l, func(p imagePattern) bool { return p.matches(r) })
}

// allowList holds which images may be used.
type allowList struct {
	patterns imageList
	// always is the default image, which may always be used.
	always imageRef
	// setting is the path of the list in the configuration, for messages.
	setting string
}

// newAllowList parses the list of allowed images.
func newAllowList(patterns []string, defaultImage, setting string) (allowList, error) {
	list, err := newImageList(patterns, setting)
	if err != nil {
		return allowList{}, err
	}
	always, err := parseRef(defaultImage)
	return allowList{patterns: list, always: always, setting: setting}, err
}

// check returns the reference of an image that may be used. Codes, with the field docker_image: invalid (not a name), denied
// (not on the list).
func (a allowList) check(name string) (imageRef, error) {
	r, err := parseRef(name)
	if err != nil || r == a.always {
		return r, err
	}
	if strings.HasPrefix(r.repository, "docker.io/"+preparedRepository) {
		return imageRef{}, executor.FieldErrorf(executor.Denied, "docker_image", "must not be a prepared image (got %q)", r.familiar())
	}
	if a.patterns.has(r) {
		return r, nil
	}
	return imageRef{}, executor.FieldErrorf(executor.Denied, "docker_image", "%s is not among the images that may be used here (%s)", r.familiar(), a.setting)
}

// pythonTag matches the tag of an official image and captures its minor version: 3.12 of 3.12.1-slim.
var pythonTag = regexp.MustCompile(`^(3\.(?:0|[1-9][0-9]?))((?:[.-].*)?)$`)

const officialPython = "docker.io/library/python"

// minorOf returns the minor Python version that an image's name promises; empty if none.
func (r imageRef) minorOf() string {
	if m := pythonTag.FindStringSubmatch(r.tag); m != nil && r.repository == officialPython {
		return m[1]
	}
	return ""
}

// chooseImage returns the image of a request: the requested image, the default image, or the variant of the default image with
// the requested Python version. minor is that version; empty means any. Codes: invalid (image and minor contradict each other).
func chooseImage(image, minor, defaultImage string) (string, error) {
	name := image
	if name == "" {
		name = defaultImage
	}
	r, err := parseRef(name)
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
	_, variant, found := strings.Cut(r.tag, "-")
	r.tag, r.digest = minor, ""
	if found {
		r.tag += "-" + variant
	}
	return r.familiar(), nil
}
