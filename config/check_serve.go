package config

import (
	"fmt"
	"strings"

	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
)

// checkServe checks the part "serve": the server and each served feed.
func (v *validator) checkServe(cfg *Serve) {
	v.checkListen("serve.listen", cfg.Listen, "")
	v.require(cfg.Listen != v.cfg.Admin.Listen || strings.HasSuffix(cfg.Listen, ":0"), "serve.listen", "is the same as admin.listen; use different addresses")
	v.require((cfg.TLS.CertFile == "") == (cfg.TLS.KeyFile == ""), "serve.tls", "want both cert_file and key_file, or neither")
	names := v.locations.namesBelow("serve.feeds")
	v.require(len(names) > 0, "serve.feeds", "there are no feeds to serve; add one, or leave serve out")
	for _, name := range names {
		f, path := cfg.Feeds[name], joinPath("serve.feeds", name)
		v.reportAll(path, serve.Config{
			Name: name, Format: f.Format, PageSize: f.PageSize, PublicURL: f.PublicURL,
			Snapshot: serve.Snapshot{Every: f.Snapshot.Every},
		}.Validate())
		v.checkServedAuth(joinPath(path, "auth"), f.Auth)
		v.checkFrom(joinPath(path, "from"), f.From)
	}
}

// checkServedAuth checks the credentials of a served feed at path.
func (v *validator) checkServedAuth(path string, a ServedAuth) {
	basic, hasBasic := joinPath(path, "basic"), a.Basic != source.Basic{}
	switch {
	case v.locations.isSet(path) && a == ServedAuth{}:
		// An empty variable must not remove a configured password.
		v.addError(path, "no credential is set, or it is empty, so everyone could read the feed; remove auth if that is intended")
	case hasBasic && a.Bearer != "":
		v.addError(path, "want bearer or basic, not both")
	case hasBasic && a.Basic.Username == "":
		v.addError(joinPath(basic, "username"), "is missing")
	case hasBasic && a.Basic.Password == "":
		v.addError(joinPath(basic, "password"), "is missing")
	case strings.Contains(a.Basic.Username, ":"):
		v.addError(joinPath(basic, "username"), "must not have a colon")
	}
}

// checkFrom checks the topic of a served feed, which is at path.
func (v *validator) checkFrom(path string, from From) {
	v.checkBusName(joinPath(path, "bus"), from.Bus)
	bus, isKnown := v.cfg.Buses[from.Bus]
	switch {
	case bus.Kafka != nil && from.Stream != "":
		v.addError(joinPath(path, "stream"), fmt.Sprintf("is for NATS, and the bus %s is Kafka; leave it out", from.Bus))
	case bus.Kafka == nil && isKnown && from.Partition != 0:
		v.addError(joinPath(path, "partition"), fmt.Sprintf("is for Kafka, and the bus %s is NATS; leave it out", from.Bus))
	case bus.Kafka != nil:
		v.reportAll(path, kafka.Topic{Name: from.Topic, Options: kafka.DefaultOptions()}.Validate())
	case isKnown: // NATS
		v.reportAll(path, nats.Topic{Subject: from.Topic, Stream: setting.Defaults[nats.Stream]()}.Validate())
	}
}
