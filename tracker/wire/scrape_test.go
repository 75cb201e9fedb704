package wire

import "fmt"

// parseScrapeAnswer reads the answer to a scrape over HTTP, which braid's peers never request. The
// error of a refusal is a *Failure.
func parseScrapeAnswer(b []byte) ([]Counts, error) {
	var out []Counts
	var f *Failure
	d := newDecoder(b)
	err := d.Dict(func(key []byte) (err error) {
		switch string(key) {
		case "failure reason":
			f = &Failure{}
			f.Reason, err = d.message()
			return err
		case "files":
			return d.Dict(func(hash []byte) error {
				var c Counts
				if len(hash) != len(c.InfoHash) || len(out) == MaxScrape {
					return d.Skip()
				}
				copy(c.InfoHash[:], hash)
				err := d.counts(&c)
				out = append(out, c)
				return err
			})
		}
		return d.Skip()
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("malformed scrape answer: %w", err)
	case f != nil:
		return nil, f
	}
	return out, nil
}

func (d *decoder) counts(c *Counts) error {
	fields := map[string]*int64{
		"complete": &c.Complete, "incomplete": &c.Incomplete, "downloaded": &c.Downloaded, "downloaders": &c.Downloaders,
	}
	return d.Dict(func(key []byte) (err error) {
		if to := fields[string(key)]; to != nil {
			*to, err = d.Number()
			return err
		}
		return d.Skip()
	})
}
