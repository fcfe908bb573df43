package config

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Defaults are values of the keys of feeds, as feed_defaults sets them: by the key, such as
// to.topic. Values that are empty are left out.
type Defaults map[string]any

// has reports whether there is a value for the key s of a feed.
func (d Defaults) has(s *spec) bool {
	key, isOfFeed := strings.CutPrefix(s.path, "feeds.*.")
	return isOfFeed && d[key] != nil
}

// layers returns the paths that can have the value at path: first path itself, and, if it is a key
// of a feed, then those of the defaults of its list and of all feeds.
func (d *diagnostics) layers(path string) []string {
	rest, isFeed := strings.CutPrefix(path, "feeds.")
	name, key, isKey := strings.Cut(rest, ".")
	if !isFeed || !isKey {
		return []string{path}
	}
	above := []string{"feeds." + name, "feed_defaults"}
	if list := d.listOf[name]; list != "" {
		above = []string{"feeds." + name, "feeds_from." + list + ".defaults", "feed_defaults"}
	}
	var paths []string
	for _, a := range above {
		paths = append(paths, a+"."+key)
		if (key == "auth" || strings.HasPrefix(key, "auth.")) && d.locations.isSet(a+".auth") {
			break // credentials are taken as a whole
		}
	}
	return paths
}

// layer returns the path that has the value at path: that of the default if a feed does not set the
// key and there is one.
func (d *diagnostics) layer(path string) string {
	for _, p := range d.layers(path) {
		if d.locations.isSet(p) {
			return p
		}
	}
	return path
}

// buildDefaults returns the values of s, which is at path.
func (l *loader) buildDefaults(s *spec, path string) (set Defaults) {
	s.forEachSetting(func(k *spec) {
		v, ok := l.values[path+strings.TrimPrefix(k.path, s.path)]
		if !ok || k.isList() && v.Len() == 0 || k.preset == "" && v.IsZero() {
			return
		}
		if set == nil {
			set = Defaults{}
		}
		set[strings.TrimPrefix(k.path, s.path+".")] = v.Interface()
	})
	return set
}

// encodeDefaults returns the values of s, a key of root, or nil if there are none.
func encodeDefaults(root, s *spec, set Defaults) *yaml.Node {
	if s.keys == nil {
		v := set[strings.TrimPrefix(s.path, root.path+".")]
		if v == nil {
			return nil
		}
		return new(Config).encodeNode(s, reflect.ValueOf(v))
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range s.keys {
		appendKey(n, k.name, encodeDefaults(root, k, set))
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

// placeholders are the parts of the names of topics and streams that differ by feed.
var placeholders = []string{"feed", "host"}

var (
	placeholderForm = regexp.MustCompile(`\{([a-z_-]+)\}`)
	notInHost       = regexp.MustCompile(`[^a-z0-9-]+`)
)

// expandTemplate replaces the placeholders in the name of a topic or stream of a feed: {feed} by its name, and
// {host} by the host and port of its URL, in which all other characters than letters, digits and - are _. Unknown
// placeholders stay.
func expandTemplate(text, feed, rawURL string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	host := "host" // the error about the URL is enough
	if u, err := url.Parse(rawURL); err == nil && u.Host != "" {
		host = strings.Trim(notInHost.ReplaceAllString(strings.ToLower(u.Host), "_"), "_")
	}
	return strings.NewReplacer("{feed}", feed, "{host}", host).Replace(text)
}

// literalPrefix returns the words of a topic before the first one with a placeholder, with the dot behind
// them. It is empty if there are no placeholders.
func literalPrefix(topic string) string {
	at := placeholderForm.FindStringIndex(topic)
	if at == nil {
		return ""
	}
	return topic[:strings.LastIndex(topic[:at[0]], ".")+1]
}

// checkTemplate reports whether the name at path has no placeholders that were not replaced.
func (v *validator) checkTemplate(path, name string) bool {
	m := placeholderForm.FindStringSubmatch(name)
	if m == nil || slices.Contains(placeholders, m[1]) {
		return true
	}
	v.addError(path, fmt.Sprintf("there is no placeholder %s; want {feed} or {host}%s", m[0], didYouMean(nearestWord(m[1], placeholders))))
	return false
}
