package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/feedbridge/feedbridge/source"
)

// WithLists returns the configuration with the feeds of lists besides its own, and the errors of the entries that
// were left out. It does not read the file and the variables again. The feeds of lists in running, which is nil at a
// start, keep their names and topics.
func (c *Config) WithLists(lists map[string][]Entry, running *Config) (*Config, Errors) {
	if c.loaded == nil {
		return c, nil
	}
	l := newLoader(nil)
	l.file, l.feedless, l.environ, l.layers, l.locations = c.loaded.file, c.loaded.feedless, c.loaded.environ, c.loaded.layers, maps.Clone(c.loaded.locations)
	l.addListed(c, running, lists)
	cfg := l.complete()
	for name := range l.refusedFeeds {
		delete(cfg.Feeds, name)
		delete(l.listOf, name)
	}
	cfg.ListOf, cfg.loaded, cfg.file, cfg.set.overridden = l.listOf, c.loaded, c.file, c.set.overridden
	return cfg, l.refused
}

// hasEntry reports whether the configuration has an entry of a list. It may be called on nil.
func (c *Config) hasEntry(list string, e Entry) bool {
	return c != nil && c.ListOf[e.Name] == list && c.Feeds[e.Name].Source.URL == e.URL
}

// addListed adds the entries of lists. Incumbents, the entries that running has from the same list with the same name
// and URL, come before all others: no new entry stops a running feed, or moves it to another topic, as long as its
// list has it. Of other entries with the same name none is added, so that no topic gets the entities of another feed,
// whatever their order. Of those with the same URL the first list's is.
//
// A copy that starts has no incumbents, so the other members of its fleet may have feeds that it refuses, or run the
// URL under another name. That moves nothing until most members have restarted: the members agree on the version of
// each list that most have, and of two versions with equally many votes on the one with more feeds. Until then a URL
// in two lists may be copied to the topics of both.
func (l *loader) addListed(c, running *Config, lists map[string][]Entry) {
	type listed struct {
		list string
		Entry
	}
	refuse := func(e listed, text string) {
		l.refused = append(l.refused, &Error{Source: listSource + e.list, Line: e.Line, Text: text})
	}
	own := map[string]string{} // the feeds of the configuration itself, by URL
	for _, name := range l.locations.namesBelow("feeds") {
		own[c.Feeds[name].Source.URL] = name
	}
	var incumbents, others []listed
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		if _, ok := c.FeedsFrom[list]; !ok {
			continue
		}
		for _, e := range lists[list] {
			e.Name = cmp.Or(e.Name, ListedName(e.URL))
			if running.hasEntry(list, e) {
				incumbents = append(incumbents, listed{list, e})
			} else {
				others = append(others, listed{list, e})
			}
		}
	}
	byName, seen, order := map[string][]listed{}, map[string]bool{}, []string{}
	for n, e := range slices.Concat(incumbents, others) {
		err, named := source.CheckURL(e.URL), byName[e.Name]
		switch {
		case err != nil:
			refuse(e, "url: "+err.Error())
		case own[e.URL] != "":
			refuse(e, fmt.Sprintf("the feed %s of the configuration has this URL too; remove one of the two", own[e.URL]))
		case seen[e.URL]:
			refuse(e, "another entry, of this list or another one, has this URL too; the entry that was used before stays, or else the first is used")
		case !nameForm.MatchString(e.Name):
			refuse(e, fmt.Sprintf("%q: %s", e.Name, badNameText(e.Name)))
		case l.locations.isSet(joinPath("feeds", e.Name)):
			refuse(e, fmt.Sprintf("the name %s belongs to a feed of the configuration; give the entry another one, by its key or attribute name", e.Name))
		case l.incumbents[e.Name]:
			refuse(e, fmt.Sprintf("the name %s belongs to a feed of the list %s, which had it before; give the entry another one, by its key or attribute name", e.Name, named[0].list))
		default:
			seen[e.URL] = true
			if l.incumbents[e.Name] = n < len(incumbents); named == nil {
				order = append(order, e.Name)
			}
			byName[e.Name] = append(named, e)
		}
	}
	for _, name := range order {
		entries := byName[name]
		if len(entries) > 1 {
			for _, e := range entries {
				refuse(e, fmt.Sprintf("%d entries with different URLs have the name %s, and none of them is read; give each a name, by its key or attribute name", len(entries), name))
			}
			continue
		}
		e, path := entries[0], joinPath("feeds", name)
		l.listOf[name] = e.list
		l.listed[name] = e.Entry
		l.locations.setLocation(path+".url", location{listSource + e.list, e.Line})
	}
}
