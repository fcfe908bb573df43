package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// variableForm matches $${, ${NAME} and ${NAME:-default}, and every other ${.
var variableForm = regexp.MustCompile(`\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\})?`)

// interpolate replaces ${NAME} and ${NAME:-default} in text, once, and $${ by ${. Its
// error is the first one. It names variables, and never quotes the text, which may be a
// secret.
func interpolate(text string, environ map[string]string) (string, error) {
	var err error
	text = variableForm.ReplaceAllStringFunc(text, func(found string) string {
		m := variableForm.FindStringSubmatch(found)
		value, set := environ[m[1]]
		switch {
		case found == "$${":
			return "${"
		case m[1] == "" || strings.Contains(m[3], "${"):
			err = cmp.Or(err, errors.New("want ${NAME} or ${NAME:-default}, not nested; write $${ where ${ itself is meant"))
		case value == "" && m[2] != "":
			return m[3]
		case !set:
			err = cmp.Or(err, fmt.Errorf("the variable %s is not set; give it a default with ${%s:-default}", m[1], m[1]))
		case !utf8.ValidString(value):
			err = cmp.Or(err, fmt.Errorf("the value of the variable %s is not UTF-8", m[1]))
		}
		return value
	})
	return text, err
}

// escapeVariables returns text in the form that interpolate turns back into text.
func escapeVariables(text string) string { return strings.ReplaceAll(text, "${", "$${") }
