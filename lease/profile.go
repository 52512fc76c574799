package lease

// SetProfile gives the account the priors of another decoding profile (mtp,
// standard or none). What its engine was seen to do is forgotten, since it was
// learnt as a share of the old priors.
func (b *Book) SetProfile(a *Account, profile string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.rates = Rates{mtp: profile == "mtp"}
}
