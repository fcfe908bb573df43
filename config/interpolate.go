package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

var variable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)

// interpolate replaces ${VAR} and ${VAR:-default} in text, once. Its errors
// name variables, and never quote the text, which may be a secret.
func interpolate(text string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			out.WriteString(text)
			return out.String(), nil
		}
		if i > 0 && text[i-1] == '$' {
			out.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		out.WriteString(text[:i])
		text = text[i:]

		m := variable.FindStringSubmatch(text)
		if m == nil || strings.Contains(m[3], "${") {
			return "", errors.New("want ${NAME} or ${NAME:-default}, not nested; write $${ where ${ itself is meant")
		}
		value, set := lookup(m[1])
		switch {
		case value == "" && m[2] != "":
			value = m[3]
		case !set:
			return "", fmt.Errorf("the variable %s is not set; give it a default with ${%s:-default}", m[1], m[1])
		case !utf8.ValidString(value):
			return "", fmt.Errorf("the value of the variable %s is not UTF-8", m[1])
		}
		out.WriteString(value)
		text = text[len(m[0]):]
	}
}

// escape returns text in the form that interpolate turns back into text.
func escape(text string) string { return strings.ReplaceAll(text, "${", "$${") }
