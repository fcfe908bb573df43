package config

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

// Load reads, completes and checks a configuration. Its error is of type
// [Errors] and has all errors.
func Load(opts Options) (*Config, error) {
	l := newLoader(opts.Environ)
	l.feedless = opts.Feedless
	l.readFile(opts.File)
	return l.loadConfig(opts)
}

// LoadAdmin reads only the settings of the admin server of a running daemon. Errors in other
// parts of the configuration are ignored: a client needs neither the variables nor the files
// that they name. Its error is of type [Errors].
func LoadAdmin(opts Options) (Admin, error) {
	l := newLoader(opts.Environ)
	l.feedless = true
	l.readFile(opts.File)
	l.readEnvironment()
	(&setReader{l.layers, l.diagnostics}).readSettings(opts.Set)
	cfg, err := l.layers.decodeConfig()
	if err != nil {
		return Admin{}, Errors{{Text: fmt.Sprintf("the configuration cannot be merged: %v", err)}}
	}
	completeDefaults(cfg, nil)
	(&validator{cfg: cfg, diagnostics: l.diagnostics}).checkAdmin(cfg.Admin)
	errs := slices.DeleteFunc(l.errs, func(e *Error) bool {
		return e.Key != "" && e.Key != "admin" && !strings.HasPrefix(e.Key, "admin.")
	})
	if len(errs) > 0 {
		errs.sortByLocation()
		return Admin{}, errs
	}
	return cfg.Admin, nil
}

// A loader reads the sources of a configuration one after the other.
type loader struct {
	environ  map[string]string
	feedless bool // accept a configuration without feeds
	layers   *layers
	names    *badNames
	*diagnostics
}

func newLoader(environ []string) *loader {
	found := locations{}
	l := &loader{
		environ:     map[string]string{},
		layers:      &layers{viper: viper.New(), locations: found},
		names:       &badNames{shown: map[string]string{}, generated: map[string]string{}},
		diagnostics: &diagnostics{locations: found, faulty: map[string]bool{}},
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		l.environ[name] = value
	}
	return l
}

// readFile reads the YAML file at path, unless path is empty.
func (l *loader) readFile(path string) {
	if path == "" {
		return
	}
	data, err := readFile(path)
	if err != nil {
		l.reportAt(location{source: path}, "", err.Error())
		return
	}
	l.readYAML(path, data)
}

// readYAML reads data, which is the content of the file.
func (l *loader) readYAML(name string, data []byte) {
	l.file = name
	node, err := parseYAML(data)
	if err != nil {
		l.reportAt(location{name, err.Line}, "", err.Text)
		return
	}
	r := fileReader{l.environ, l.names, l.diagnostics}
	if values, ok := r.readNode(root, "", node); ok {
		if err := l.layers.viper.MergeConfigMap(values.(map[string]any)); err != nil {
			l.reportAt(location{source: name}, "", err.Error())
		}
	}
}

func (l *loader) readEnvironment() {
	r := envReader{l.environ, maps.Clone(l.locations), l.layers, l.diagnostics}
	r.readVariables()
}

// loadConfig reads the sources other than the file after it, and returns the configuration.
func (l *loader) loadConfig(opts Options) (*Config, error) {
	l.readEnvironment()
	(&setReader{l.layers, l.diagnostics}).readSettings(opts.Set)
	if opts.URL != "" {
		feed := "feeds." + feedName(opts.URL)
		// URL is the source of its errors.
		l.layers.override(feed+".url", opts.URL, location{source: "URL"})
		if opts.Topic != "" {
			l.layers.override(feed+".to.topic", opts.Topic, location{source: "--topic"})
		}
	}
	buses := l.locations.namesBelow("buses")
	if len(buses) == 0 {
		buses = []string{"embedded"}
		l.locations.setLocation("buses.embedded.embedded", location{})
	}
	cfg, err := l.layers.decodeConfig()
	if err != nil {
		// Every value was decoded once already when it was read: this is a
		// defect of this package, not an error of the operator.
		return nil, Errors{{Text: fmt.Sprintf("the configuration cannot be merged: %v", err)}}
	}
	completeDefaults(cfg, buses)
	(&validator{cfg, buses, l.feedless, l.diagnostics}).checkConfig()
	if len(l.errs) > 0 {
		l.names.restore(l.errs)
		l.errs.sortByLocation()
		return nil, l.errs
	}
	return cfg, nil
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
