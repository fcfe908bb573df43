package serve

// format writes pages.
type format interface {
	// contentType returns the media type of a page.
	contentType(p *page) string
	// entity appends an entity to a page.
	entity(b []byte, p *page, e *entity) []byte
	// frame returns the bytes before and behind the entities.
	frame(c *Config, p *page) (head, tail []byte)
}

var formats = map[Format]format{DataReplication: multipart{}, Atom: atomFormat{}, RSS: rssFormat{}}
