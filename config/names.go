package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// nameForm matches the names of feeds and buses.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// badNames has the invalid names of the file. Each is replaced by a valid name while the
// configuration is read, so that all keys below it can be read and checked.
type badNames struct {
	// shown has the paths as the file has them, by the path that replaces them.
	shown map[string]string
	// generated has the invalid names that were replaced by a generated one, by the
	// latter.
	generated map[string]string
}

// replaceName returns a valid name for the invalid name in the mapping n, which is at path:
// the name that was most likely meant, or, if n has that already, an unused one.
func (b *badNames) replaceName(path, bad string, n *yaml.Node) string {
	name := likelyName(bad)
	_, taken := b.shown[joinPath(path, name)]
	for i := 0; i < len(n.Content); i += 2 {
		taken = taken || n.Content[i].Value == name
	}
	if taken || name == "" {
		name = fmt.Sprintf("invalid-%d-name", len(b.shown))
		b.generated[name] = quoteKey(bad)
	}
	b.shown[joinPath(path, name)] = joinPath(path, quoteKey(bad))
	return name
}

// restore puts the invalid names of the file back into errors.
func (b *badNames) restore(errs Errors) {
	for _, e := range errs {
		for name, bad := range b.generated {
			e.Text = strings.ReplaceAll(e.Text, name, bad)
		}
		for path, bad := range b.shown {
			// A variable refers to the valid name.
			if rest, below := strings.CutPrefix(e.Key+".", path+"."); below && e.Line > 0 {
				e.Key = strings.TrimSuffix(bad+"."+rest, ".")
				break
			}
		}
	}
}

func badNameText(name string) string {
	const rule = "a name has only lower-case letters, digits and -, and starts with a letter"
	if likely := likelyName(name); likely != "" {
		return fmt.Sprintf("%s; try %q", rule, likely)
	}
	return rule
}

// likelyName returns the valid name that an invalid one was most likely meant to be,
// or the empty string.
func likelyName(bad string) string {
	lower := strings.ReplaceAll(strings.ToLower(bad), "_", "-")
	if nameForm.MatchString(lower) {
		return lower
	}
	return ""
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_<-]+$`)

// quoteKey quotes a key that would break the form of a path, or of a line.
func quoteKey(key string) string {
	if plainKey.MatchString(key) {
		return key
	}
	return strconv.Quote(key)
}
