package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// commit is the entities of one commit.
type commit struct {
	entities []entity
	pages    []string // the page of each entity
}

// joinPages joins the entities of pages to commits within these limits. A commit takes what
// has been read, and does not wait for more. The memory of its entities is used again for other pages
// when the next one is requested.
func joinPages(pages <-chan page, maxEntities, maxBytes int) func() (commit, error) {
	var p page
	open := true
	var c commit
	var used []*pageMemory
	return func() (commit, error) {
		for _, m := range used {
			spareMemory.Put(m)
		}
		c, used = commit{c.entities[:0], c.pages[:0]}, used[:0]
		for size := 0; ; {
			for len(p.entities) > 0 {
				e := p.entities[0]
				if size += e.size(); len(c.entities) > 0 && (len(c.entities) == maxEntities || size > maxBytes) {
					return c, nil
				}
				c.entities, c.pages = append(c.entities, e), append(c.pages, p.url)
				p.entities = p.entities[1:]
			}
			if p.memory != nil {
				used, p.memory = append(used, p.memory), nil
			}
			if !open {
				return c, nil
			}
			if len(c.entities) == 0 {
				p, open = <-pages
			} else {
				select {
				case p, open = <-pages:
				default:
					return c, nil
				}
			}
			if p.err != nil {
				return commit{}, p.err
			}
		}
	}
}

// fields calls f with each header of the message of an entity.
func (c *commit) fields(i int, f func(name, value string)) {
	var operation, modified string
	for header := c.entities[i].header; header != ""; {
		line, rest, _ := strings.Cut(header, "\r\n")
		name, value, _ := strings.Cut(line, ": ")
		f(name, value)
		switch name {
		case "Operation-Type":
			operation = value
		case "Last-Modified":
			modified = value
		}
		header = rest
	}
	f("Feedbridge-Operation", strings.TrimPrefix(operation, "http-equiv="))
	if at, err := http.ParseTime(modified); err == nil {
		f("Feedbridge-Time", at.Format(time.RFC3339Nano))
	}
	f("Feedbridge-Feed", "bench")
	f("Feedbridge-Page", c.pages[i])
}

// encodeCheckpoint returns the checkpoint of a commit, as large as one of feedbridge.
func encodeCheckpoint(count int) []byte {
	return checkpoint.Encode(checkpoint.Checkpoint{Feed: "bench", Source: "floor", Cursor: make(feed.Cursor, 200), Count: uint64(count)})
}
