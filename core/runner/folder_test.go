//go:build linux

package runner

import (
	"testing"
)

func TestAProgramThatTakesItsOwnRightsAwayLeavesNothingBehind(t *testing.T) {
	r := startInside(t)
	for _, mode := range []string{"0o500", "0o300", "0"} {
		r.run(t, python(`
import os
open("secret", "w").close(); os.mkdir("d"); open("d/f", "w").close(); os.chmod("d", `+mode+`); os.chmod(".", `+mode+`)
`), RunInput{})
		res, rec := r.run(t, python("import os; print(sorted(os.listdir('.')))"), RunInput{})
		if rec.stdout() != "['main.py']\n" {
			t.Errorf("%s: %s %q\n%s", mode, describe(res), rec.stdout(), r.stderr)
		}
	}
}
