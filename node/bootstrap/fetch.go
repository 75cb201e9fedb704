package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	cppb "github.com/scionproto/scion/pkg/proto/control_plane"
	"github.com/scionproto/scion/pkg/scrypto"
	"github.com/scionproto/scion/pkg/scrypto/cppki"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"braid/pathsel"
)

// Bounds of a server's answers. Real topologies and TRCs have a few kilobytes.
const (
	maxTopology = 1 << 20
	maxList     = 256 << 10
	maxTRC      = 1 << 20
	maxTRCs     = 64 // in the list; there are a few ISDs today
	// A user waits for a server: for fetchPatience at most, for answerPatience if it does not begin
	// to answer a request, and for dialPatience if it does not accept the connection.
	fetchPatience, answerPatience, dialPatience = 10 * time.Second, 4 * time.Second, 2 * time.Second
)

// Offer is what a server says.
type Offer struct {
	Server   string // URL
	IA       pathsel.IA
	Topology []byte
	TRCs     []cppki.SignedTRC
}

// ParseServer reads the address of a server: a URL with http or https, or host:port.
func ParseServer(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	wrong := err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil
	if wrong || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q: want http://HOST:PORT, the address of a SCION discovery server",
			text)
	}
	if u.Port() == "" && u.Scheme == "http" {
		u.Host += fmt.Sprintf(":%d", DefaultPort)
	}
	return u, nil
}

// Fetch asks a server for the topology of the AS and for TRCs. It also fetches the TRCs between a
// known one and the newest, which prove that the newest is right.
func Fetch(ctx context.Context, server string, known []cppki.SignedTRC) (o Offer, err error) {
	u, err := ParseServer(server)
	if err != nil {
		return o, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	if o, err = fetch(ctx, u, known); err != nil {
		return o, fmt.Errorf("ask %s for the SCION configuration: %w", u, err)
	}
	return o, nil
}

func fetch(ctx context.Context, u *url.URL, known []cppki.SignedTRC) (o Offer, err error) {
	o.Server = u.String()
	o.Topology, err = get(ctx, u.JoinPath("topology"), maxTopology)
	if errors.Is(err, errNotFound) { // a control service instead of a discovery server
		u = u.JoinPath("api", "v1")
		o.Topology, err = get(ctx, u.JoinPath("topology"), maxTopology)
	}
	if err != nil {
		return o, err
	}
	topo := readTopology(ctx, o.Topology)
	if o.Topology, o.IA = topo.file, topo.ia; topo.err != nil {
		return o, topo.err
	}
	list, err := get(ctx, u.JoinPath("trcs"), maxList)
	if err != nil {
		return o, err
	}
	ids, err := parseList(list)
	if err != nil {
		return o, err
	}
	for _, id := range missing(ids, known) {
		t, err := fetchTRC(ctx, u, id, topo.services)
		if err != nil {
			return o, fmt.Errorf("TRC %s: %w", id, err)
		}
		o.TRCs = append(o.TRCs, t)
	}
	return o, nil
}

// parseList reads the list of TRCs.
func parseList(b []byte) (ids []cppki.TRCID, err error) {
	var list []struct {
		ID struct {
			ISD    uint16 `json:"isd"`
			Base   uint64 `json:"base_number"`
			Serial uint64 `json:"serial_number"`
		} `json:"id"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("its list of TRCs is wrong: %w", err)
	}
	if len(list) > maxTRCs {
		return nil, fmt.Errorf("its list has %d TRCs, want at most %d", len(list), maxTRCs)
	}
	for _, x := range list {
		id := cppki.TRCID{
			ISD:    addr.ISD(x.ID.ISD),
			Base:   scrypto.Version(x.ID.Base),
			Serial: scrypto.Version(x.ID.Serial),
		}
		if err := id.Validate(); err != nil {
			return nil, fmt.Errorf("its list of TRCs is wrong: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// maxSteps bounds the TRCs that are fetched between a known one and the newest of an ISD.
const maxSteps = 32

// missing returns the TRCs to fetch: those in the list, and those between them and the newest known
// one of the same base. Each comes before its successor.
func missing(list []cppki.TRCID, known []cppki.SignedTRC) (out []cppki.TRCID) {
	for _, id := range list {
		from := id.Serial
		newest := id.Base - 1
		for _, k := range known {
			if k := k.TRC.ID; k.ISD == id.ISD && k.Base == id.Base && k.Serial < id.Serial {
				newest = max(newest, k.Serial)
			}
		}
		if newest >= id.Base && id.Serial-newest <= maxSteps {
			from = newest + 1
		}
		for i := range id.Serial - from + 1 { // the serial may be the largest number there is
			out = append(out, cppki.TRCID{ISD: id.ISD, Base: id.Base, Serial: from + i})
		}
	}
	slices.SortFunc(out, compareIDs)
	return slices.Compact(out)
}

func compareIDs(a, b cppki.TRCID) int {
	return cmp.Or(cmp.Compare(a.ISD, b.ISD), cmp.Compare(a.Base, b.Base), cmp.Compare(a.Serial, b.Serial))
}

// fetchTRC asks the server for a TRC with its signatures. The HTTP interface of scionproto's
// control service leaves the signatures away; the service itself, which the topology names, has
// them.
func fetchTRC(
	ctx context.Context, u *url.URL, id cppki.TRCID, services []string,
) (t cppki.SignedTRC, err error) {
	b, err := get(ctx, u.JoinPath("trcs",
		fmt.Sprintf("isd%d-b%d-s%d", id.ISD, id.Base, id.Serial), "blob"), maxTRC)
	if err != nil {
		return t, err
	}
	if bare, e := cppki.DecodeTRC(DER(b)); e == nil { // it has no signatures
		if t, err = AskForTRC(ctx, id, services); err == nil && !bytes.Equal(t.TRC.Raw, bare.Raw) {
			err = errors.New("the control service has another one than its HTTP interface")
		}
	} else {
		t, err = decodeTRC(b)
	}
	if err == nil && t.TRC.ID != id {
		err = fmt.Errorf("it is another one, %s", t.TRC.ID)
	}
	return t, err
}

// AskForTRC asks the control services in turn for a TRC, or for the newest one of the ISD if base
// and serial are 0. The answer may be another TRC.
func AskForTRC(
	ctx context.Context, id cppki.TRCID, services []string,
) (t cppki.SignedTRC, err error) {
	err = errors.New("it has no signatures, and no control service is named that could have them")
	for _, s := range services {
		var c *grpc.ClientConn
		c, err = grpc.NewClient("passthrough:///"+s,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxTRC)))
		if err != nil {
			continue
		}
		var r *cppb.TRCResponse
		one, cancel := context.WithTimeout(ctx, fetchPatience/(maxServices+1)) // leaves time for others
		r, err = cppb.NewTrustMaterialServiceClient(c).TRC(one, &cppb.TRCRequest{
			Isd:    uint32(id.ISD),
			Base:   uint64(id.Base),
			Serial: uint64(id.Serial),
		})
		cancel()
		c.Close()
		if err == nil {
			t, err = decodeTRC(r.GetTrc())
		}
		if err == nil {
			return t, nil
		}
		err = fmt.Errorf("ask the control service at %s for the signatures: %w", s, err)
	}
	return t, err
}

// DER returns a file in DER, which may be in PEM.
func DER(b []byte) []byte {
	if block, _ := pem.Decode(b); block != nil {
		return block.Bytes
	}
	return b
}

// decodeTRC reads a TRC in PEM or DER.
func decodeTRC(b []byte) (cppki.SignedTRC, error) {
	t, err := cppki.DecodeSignedTRC(DER(b))
	if err != nil {
		return t, fmt.Errorf("it is damaged: %w", err)
	}
	return t, t.TRC.Validate()
}

// plain is an HTTP client that follows no redirects, which could lead anywhere.
var plain = &http.Client{
	Transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialPatience}).DialContext,
		DisableKeepAlives:      true,
		ResponseHeaderTimeout:  answerPatience,
		MaxResponseHeaderBytes: 64 << 10,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

var errNotFound = errors.New("the server answers 404 Not Found")

func get(ctx context.Context, u *url.URL, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := plain.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%s: %w", u.Path, errNotFound)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: the server answers %s", u.Path, res.Status)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s: more than the %d bytes that are accepted", u.Path, most)
	}
	return b, err
}
