package config

import "testing"

func TestInterpolate(t *testing.T) {
	t.Parallel()
	environ := map[string]string{"A": "a", "EMPTY": "", "DOLLARS": "${A}$${A}"}
	for text, want := range map[string]string{
		"":                      "",
		"plain $5 $A }":         "plain $5 $A }",
		"${A}${A}-${EMPTY}":     "aa-",
		"${EMPTY:-b}${NONE:-c}": "bc",
		"${NONE:-}${A:-b}":      "a",
		"${NONE:-a:-b {c}":      "a:-b {c",
		"$${A} $$${A}":          "${A} $${A}",
		"${DOLLARS}":            "${A}$${A}",
	} {
		got, err := interpolate(text, environ)
		if err != nil || got != want {
			t.Errorf("%s becomes %q (error %v), want %q", text, got, err, want)
		}
		if back, err := interpolate(escapeVariables(text), environ); err != nil || back != text {
			t.Errorf("%s, escaped, becomes %q (error %v)", text, back, err)
		}
	}
	for _, text := range []string{"${NONE}", "${", "${A", "${}", "${1}", "${A:b}", "${A-b}", "${NONE:-${A}}"} {
		if got, err := interpolate(text, environ); err == nil {
			t.Errorf("%s becomes %q, want an error", text, got)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"url", "max_age", "max_bytes", "to.stream"}
	for word, want := range map[string]string{
		"ulr": "url", "uri": "url", "URL": "url", "maxAge": "max_age", "max-ages": "max_age", "maxbites": "max_bytes",
		"colour": "", "x": "", "": "",
	} {
		if got := nearestWord(word, known); got != want {
			t.Errorf("%q is taken for %q, want %q", word, got, want)
		}
	}
}
