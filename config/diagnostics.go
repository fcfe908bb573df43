package config

import "strings"

// diagnostics collects the errors of one configuration.
type diagnostics struct {
	// file is the source of errors in values that are set nowhere; empty if there is
	// no file.
	file      string
	locations locations
	// suppressed has the paths with an error. Their values were dropped, and checks must not
	// report them as missing or invalid too.
	suppressed map[string]bool
	// inDefaults has the keys of defaults with an error that a feed has shown. Other feeds show the
	// same one.
	inDefaults map[string]bool
	errs       Errors
	// listOf has the list of each feed that is not one of the configuration itself. Errors of these
	// feeds are in refused, one for each of refusedFeeds.
	listOf       map[string]string
	refusedFeeds map[string]bool
	// listed has the entries of the feeds in listOf.
	listed map[string]Entry
	// overridden has the keys of the file that variables or --set override.
	overridden []string
	// incumbents are the feeds of lists that the configuration in use has already.
	incumbents map[string]bool
	refused    Errors
}

func newDiagnostics() diagnostics {
	return diagnostics{
		locations: locations{}, suppressed: map[string]bool{}, inDefaults: map[string]bool{},
		listOf: map[string]string{}, listed: map[string]Entry{}, refusedFeeds: map[string]bool{}, incumbents: map[string]bool{},
	}
}

// reportAt adds an error that was found while reading, and excludes path from later
// checks.
func (d *diagnostics) reportAt(at location, path, text string) {
	d.suppress(path)
	d.errs = append(d.errs, &Error{Source: at.source, Line: at.line, Key: path, Text: text})
}

// addError adds an error that was found after reading, unless it can be a consequence
// of an error that was found while reading path, or the defaults for it. It points at the
// closest location that is known.
func (d *diagnostics) addError(path, text string) {
	if rest, ok := strings.CutPrefix(path, "feeds."); ok && len(d.listOf) > 0 {
		name, _, _ := strings.Cut(rest, ".")
		if d.listOf[name] != "" {
			if !d.refusedFeeds[name] {
				at := d.locations.closest(path)
				d.refused = append(d.refused, &Error{Source: at.source, Line: at.line, Key: path, Text: text})
			}
			d.refusedFeeds[name] = true
			return
		}
	}
	for _, p := range d.layers(path) {
		for f := range d.suppressed {
			if f == "" || f == p || strings.HasPrefix(p, f+".") || strings.HasPrefix(f, p+".") {
				return
			}
		}
	}
	if origin := d.layer(path); origin != path {
		if path = origin; d.inDefaults[path] {
			return
		}
		d.inDefaults[path] = true
	}
	at := d.locations.closest(path)
	if at.source == "" {
		at.source = d.file
	}
	d.errs = append(d.errs, &Error{Source: at.source, Line: at.line, Key: path, Text: text})
}

// suppress excludes path, and with it all paths above and below it, from later checks.
func (d *diagnostics) suppress(path string) { d.suppressed[path] = true }

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
