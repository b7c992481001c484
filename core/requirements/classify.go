package requirements

import (
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

var (
	offlineForm = compiled(`(?i)failed to fetch|request failed|error sending request|client error \(connect\)|dns error|network was disabled|connection (refused|reset)|timed out|certificate|tls|max retries exceeded|name resolution`)
	fullForm    = compiled(`(?i)no space left on device|disk quota exceeded`)
	noWheelForm = compiled(`(?i)building from source is disabled|no usable wheels`)
	noneForm    = compiled(`from versions: none\)`)
	oursForm    = compiled(`(?i)permission denied \(os error|read-only file system`)
)

// Classify turns the error output of uv or pip into a Failure of phase prepare. The code is unavailable if the index could not
// be reached, exhausted if the disk is full, internal if our own folders are at fault, and invalid otherwise. The message
// always holds the whole output. It names allow_builds where that may help.
func Classify(said string) *executor.Failure {
	switch {
	case fullForm().MatchString(said):
		return &executor.Failure{Code: executor.Exhausted, Phase: executor.PhasePrepare, Message: "no space for the environment:\n" + said}
	case oursForm().MatchString(said):
		return &executor.Failure{Code: executor.Internal, Phase: executor.PhasePrepare, Message: said}
	case offlineForm().MatchString(said):
		return &executor.Failure{Code: executor.Unavailable, Phase: executor.PhasePrepare, Message: "the package index could not be reached:\n" + said}
	}
	switch {
	case noWheelForm().MatchString(said):
		said += "\nonly wheels are installed, and none fits: the setting allow_builds of the backend lets packages be built from source"
	case noneForm().MatchString(said): // pip says this of a package without a wheel, too
		said += "\nonly wheels are installed: if the package exists as source only, the setting allow_builds of the backend lets it be built"
	}
	return &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "requirements_txt", Message: said}
}

// Refused returns the Failure of a requirements text that Normalise has refused: phase prepare, code invalid.
func Refused(err error) *executor.Failure {
	return &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "requirements_txt", Message: "requirements_txt: " + err.Error()}
}

// NotPublic says why nothing is fetched from an endpoint ("host:port"). It says the same of every endpoint, so it does not tell what is there.
func NotPublic(endpoint string) string {
	return endpoint + " has no public address that can be used over https. Packages come from the package index of the server and from public addresses: put the package on that index, or have the operator open the address"
}

// WithoutCredentials removes user:password@ from every URL in text.
func WithoutCredentials(text string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, "://")
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i+3])
		text = text[i+3:]
		end := strings.IndexAny(text, "/ \t\r\n\"'`)")
		if end < 0 {
			end = len(text)
		}
		if at := strings.LastIndexByte(text[:end], '@'); at >= 0 {
			text = text[at+1:]
		}
	}
}
