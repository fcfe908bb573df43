package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/internal/credential"
)

// setSource is the source of errors in [Options.Set].
const setSource = "--set"

// A setReader reads the settings of [Options.Set].
type setReader struct {
	layers *layers
	*diagnostics
}

// readSettings reads settings of the form path=value. A later one takes precedence.
func (r *setReader) readSettings(settings []string) {
	for _, setting := range settings {
		path, text, ok := strings.Cut(setting, "=")
		if !ok {
			r.reportAt(location{source: setSource}, "", fmt.Sprintf("want KEY=VALUE, such as feeds.orders.every=30s, not %q", keyOnly(path)))
			continue
		}
		r.readSetting(path, text)
	}
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

func (r *setReader) readSetting(path, text string) {
	at := location{source: setSource}
	s, err := findSetting(path)
	var value any
	if err == nil {
		value, err = decodeSetting(s, text)
	}
	if err != nil {
		// An unknown key has nothing that a later check could find missing.
		r.errs = append(r.errs, &Error{Source: at.source, Key: path, Text: err.Error()})
		if s != nil {
			r.suppress(path)
		}
		return
	}
	r.layers.override(path, value, at)
}

// decodeSetting returns the value of s that text has. No error quotes text.
func decodeSetting(s *spec, text string) (value any, err error) {
	_, isFile := credential.Secret(text).File()
	switch {
	case s.typ == secretType && !isFile || s.isList() && s.elem.typ == secretType:
		return nil, errors.New("a command line can be read by everyone on the machine; set secrets as file:PATH, in the file, by " +
			"${NAME} in it, or by the variable " + envPrefix + strings.ReplaceAll(spellPath(s.path), "*", "<NAME>"))
	case !utf8.ValidString(text):
		return nil, errors.New("the value is not UTF-8")
	case s.isList():
		return splitList(text, s.itemsHaveCommas())
	}
	err = s.checkText(text)
	return text, err
}

// findSetting returns the spec of the scalar or list that path names.
func findSetting(path string) (*spec, error) {
	s := root
	for part := range strings.SplitSeq(path, ".") {
		pattern := joinPath(s.path, part)
		k := s.findKey(part)
		switch {
		case s.isNameMapping() && !nameForm.MatchString(part):
			return nil, errors.New(badNameText(part))
		case k == nil && reserved[pattern] != "":
			return nil, errors.New(notInThisVersion(pattern))
		case k == nil && s.keys == nil:
			return nil, fmt.Errorf("%s has no keys", s.name)
		case k == nil:
			if meant := s.nearestKey(part); meant != "" {
				return nil, errors.New("unknown key" + didYouMean(meant))
			}
			return nil, errors.New("unknown key; known here: " + strings.Join(s.keyNames(), ", "))
		}
		s = k
	}
	if s.isScalar() || s.isList() {
		return s, nil
	}
	if s.isNameMapping() {
		return nil, errors.New("this is a mapping of names; set a key below a name in it")
	}
	return nil, errors.New("this is a mapping; set one of its keys: " + strings.Join(s.keyNames(), ", "))
}
