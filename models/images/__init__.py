"""Problems that classify images and other samples, and their networks."""
