package config

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// Load reads, completes and checks a configuration. Its error is of type
// [Errors] and has all errors.
func Load(opts Options) (*Config, error) {
	l := newLoader(opts.Environ)
	l.feedless = opts.Feedless
	if opts.File != "" {
		l.readFile(opts.File)
	}
	return l.load(opts.URL)
}

func (l *loader) load(feedURL string) (*Config, error) {
	l.readEnvironment()
	if feedURL != "" {
		l.set(join(join("feeds", feedName(feedURL)), "url"), feedURL, place{source: feedURLArgument})
	}
	if len(l.names("buses")) == 0 {
		l.note("buses.embedded.embedded", place{})
	}
	cfg, err := l.merge()
	if err != nil {
		// Every value was decoded once already when it was read: this is a
		// defect, and not the operator's.
		return nil, Errors{{Text: fmt.Sprintf("the configuration cannot be merged: %v", err)}}
	}
	l.complete(cfg)
	l.check(cfg)
	if len(l.errs) > 0 {
		l.showBadNames()
		l.errs.sort()
		return nil, l.errs
	}
	return cfg, nil
}

// feedURLArgument names Options.URL in errors.
const feedURLArgument = "URL"

// A loader collects the values of a configuration and their errors.
type loader struct {
	// environ has the environment's variables.
	environ map[string]string
	// file is the path of the file that was read; empty if there is none.
	file string
	// document has the values of the file that are good: text, lists of text,
	// and mappings of them.
	document map[string]any
	// overrides has the values of variables and of Options.URL, by path. They take
	// precedence over the file.
	overrides map[string]any
	// places has the place where each path that occurs was last set.
	places map[string]place
	// faulty has the paths with an error. Settings that were dropped because of it
	// must not be reported as missing too.
	faulty map[string]bool
	// badNames has the paths in the file that end with an invalid name, by the path
	// that replaces them.
	badNames map[string]string
	// invented has the invalid names that were replaced by a generated one, by the
	// latter.
	invented map[string]string
	// feedless allows a configuration without feeds.
	feedless bool
	errs     Errors
}

// A place is the origin of a value.
type place struct {
	source string // a file or a variable
	line   int    // of the file, or 0
}

func newLoader(environ []string) *loader {
	l := &loader{
		environ:   map[string]string{},
		overrides: map[string]any{},
		places:    map[string]place{},
		faulty:    map[string]bool{},
		badNames:  map[string]string{},
		invented:  map[string]string{},
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		l.environ[name] = value
	}
	return l
}

// note records that path, and with it all paths above it, occurs at p.
func (l *loader) note(path string, p place) {
	l.places[path] = p
	for above, ok := parent(path); ok && above != ""; above, ok = parent(above) {
		if _, known := l.places[above]; !known {
			l.places[above] = p
		}
	}
}

// set gives path a value that takes precedence over the file.
func (l *loader) set(path string, value any, p place) {
	l.note(path, p)
	l.overrides[path] = value
}

// names returns the names that occur below path, in order.
func (l *loader) names(path string) []string {
	found := map[string]bool{}
	for p := range l.places {
		if rest, ok := strings.CutPrefix(p, path+"."); ok {
			name, _, _ := strings.Cut(rest, ".")
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// fault reports an error at p and leaves path out of further checks.
func (l *loader) fault(p place, path, text string) {
	l.faulty[path] = true
	l.errs = append(l.errs, &Error{Source: p.source, Line: p.line, Key: path, Text: text})
}

// wrong reports an error that was found after reading, unless it can be a consequence
// of an error that was found while reading path. It points at the nearest place that is
// known.
func (l *loader) wrong(path, text string) {
	for f := range l.faulty {
		if f == "" || f == path || strings.HasPrefix(path, f+".") || strings.HasPrefix(f, path+".") {
			return
		}
	}
	e := &Error{Key: path, Text: text}
	for at, ok := path, true; ok; at, ok = parent(at) {
		if p, known := l.places[at]; known {
			e.Source, e.Line = p.source, p.line
			break
		}
	}
	if e.Source == "" {
		e.Source = l.file
	}
	l.errs = append(l.errs, e)
}

// merge combines defaults, file and overrides; later ones take precedence.
func (l *loader) merge() (*Config, error) {
	v := viper.New()
	l.setDefaults(root, "", v)
	if err := v.MergeConfigMap(l.document); err != nil {
		return nil, err
	}
	for path, value := range l.overrides {
		v.Set(path, value)
	}
	cfg := &Config{}
	return cfg, v.UnmarshalExact(cfg, func(d *mapstructure.DecoderConfig) {
		d.TagName = "yaml"
		d.SquashTagOption = "inline"
		d.WeaklyTypedInput = false
		d.DecodeHook = func(from, to reflect.Value) (any, error) {
			if from.Kind() != reflect.String || !isScalar(to.Type()) {
				return from.Interface(), nil
			}
			v, err := decodeText(to.Type(), from.String())
			return v.Interface(), err
		}
	})
}

// setDefaults gives viper the defaults for the names that occur: viper has no defaults
// for names that are chosen by the operator.
func (l *loader) setDefaults(s *spec, path string, v *viper.Viper) {
	if _, occurs := l.places[path]; s.optional && !occurs {
		return
	}
	switch {
	case s.isNames():
		for _, name := range l.names(path) {
			l.setDefaults(s.elem, join(path, name), v)
		}
	case s.preset != "":
		v.SetDefault(path, s.preset)
	}
	for _, k := range s.keys {
		l.setDefaults(k, join(path, k.name), v)
	}
}

func parent(path string) (above string, ok bool) {
	if path == "" {
		return "", false
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))], true
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// feedName makes a name of a URL's host and path.
func feedName(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "feed"
	}
	name := notInName.ReplaceAllString(strings.ToLower(u.Host+u.Path), "-")
	switch name = strings.Trim(name, "-"); {
	case name == "":
		return "feed"
	case name[0] <= '9':
		return "feed-" + name
	}
	return name
}
