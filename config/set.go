package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/viper"

	"github.com/feedbridge/feedbridge/internal/credential"
)

// setSource is the source of errors in [Options.Set].
const setSource = "--set"

// readSettings reads settings of the form path=value. A later one takes precedence.
func (l *loader) readSettings(settings []string) {
	at, layer := location{source: setSource}, viper.New()
	for _, setting := range settings {
		path, text, ok := strings.Cut(setting, "=")
		if !ok {
			l.reportAt(at, "", fmt.Sprintf("want KEY=VALUE, such as feeds.orders.every=30s, not %q", keyOnly(path)))
			continue
		}
		s, err := findSetting(path)
		_, isFile := credential.Secret(text).File()
		switch {
		case err != nil:
			// An unknown key has nothing that a later check could find missing.
			l.errs = append(l.errs, &Error{Source: setSource, Key: path, Text: err.Error()})
		case s.isSecret() && (s.isList() || !isFile):
			l.reportAt(at, path, "a command line can be read by everyone on the machine; set secrets as file:PATH, in the file, by "+
				"${NAME} in it, or by the variable "+envPrefix+strings.ReplaceAll(spellPath(s.path), "*", "<NAME>"))
		default:
			l.setText(layer, s, path, text, at)
		}
	}
	l.addLayer(layer.AllSettings())
}

// keyOnly returns the start of a setting that can be a key. A secret may follow.
func keyOnly(setting string) string {
	isForeign := func(c rune) bool {
		return c != '.' && c != '-' && c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}
	if i := strings.IndexFunc(setting, isForeign); i >= 0 {
		return setting[:i] + "…"
	}
	return setting
}

// findSetting returns the spec of the scalar or list that path names.
func findSetting(path string) (*spec, error) {
	s := schemaRoot
	for part := range strings.SplitSeq(path, ".") {
		k := s.findKey(part)
		switch {
		case s.isNameMapping() && !nameForm.MatchString(part):
			return nil, errors.New(badNameText(part))
		case k == nil && s.keys == nil:
			return nil, fmt.Errorf("%s has no keys", s.name)
		case k == nil:
			text, _ := s.unknownKey(part)
			return nil, errors.New(text)
		}
		s = k
	}
	if !s.isMapping() {
		return s, nil
	}
	if s.isNameMapping() {
		return nil, errors.New("this is a mapping of names; set a key below a name in it")
	}
	return nil, errors.New("this is a mapping; set one of its keys: " + strings.Join(s.keyNames(), ", "))
}
