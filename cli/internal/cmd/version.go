package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show version info",
		Args:  none,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Commit  string `json:"commit,omitempty"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{g.bundle.Version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if g.json {
				return printJSON(g.Out, v)
			}
			line := fmt.Sprintf("python-executor %s (%s, %s/%s", v.Version, v.Go, v.OS, v.Arch)
			if v.Commit != "" {
				line += ", commit " + v.Commit
			}
			_, err := fmt.Fprintln(g.Out, line+")")
			return err
		},
	}
}

// commit returns the commit that the Go tool recorded; empty if there is none.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return ""
}
