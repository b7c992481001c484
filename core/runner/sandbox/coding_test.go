//go:build linux

package sandbox

import "testing"

func TestCodeIsReadInItsOwnCharacters(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"# coding: latin-1\nprint('ä')":                           "# coding: utf-8\nprint('ä')",
		"#!/usr/bin/python\n# -*- coding: cp1252 -*-\nprint('ä')": "#!/usr/bin/python\n# -*- coding: utf-8 -*-\nprint('ä')",
		"\r\n# vim: set fileencoding=latin-1 :\r\n'ä'":            "\r\n# vim: set fileencoding=utf-8 :\r\n'ä'",
		"\r#coding=latin-1\r'ä'":                                  "\r#coding=utf-8\r'ä'",
		"# coding: utf-8\n'ä'":                                    "# coding: utf-8\n'ä'",
		"# ä coding: latin-1":                                     "# ä coding: utf-8",
		"# coding: latin-1\nprint('a')":                           "# coding: latin-1\nprint('a')", // ASCII
		"x = 'ä'\n# coding: latin-1":                              "x = 'ä'\n# coding: latin-1",    // Python does not look there
		"#\n#\n# coding: latin-1\n'ä'":                            "#\n#\n# coding: latin-1\n'ä'",  // nor there
		"x = 'coding: latin-1 ä'":                                 "x = 'coding: latin-1 ä'",
		"'ä'":                                                     "'ä'",
		"\n":                                                      "\n",
		"":                                                        "",
	} {
		if got := declared(code); got != want {
			t.Errorf("%q becomes %q, want %q", code, got, want)
		}
	}
}
